"""Forecasts what a run will do: where each worker is, and what memory a card needs, or the machine
where the run trains on its CPU.

`mortal train --dry-run` prints it, and a run whose cards are too small is refused before it begins.
The formula is in `compute/memory.py`; docs/gpu.md shows it for common machines.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from mortal_steps.compute.devices import Gpu
from mortal_steps.compute.memory import BYTES, CONTEXT, TrainingMemory, training_memory
from mortal_steps.compute.placement import Placement, gpus_per_engine, sharing_gpus
from mortal_steps.config import ComputeConfig, ModelConfig, RolloutConfig
from mortal_steps.config.gpus import GIB
from mortal_steps.models.shape import ModelShape, find_shape
from mortal_steps.places.base import Place
from mortal_steps.policy.plan import TrainerPlan
from mortal_steps.rollout.engines.vllm.platforms import KV_CACHE_SEQUENCES, MIN_KV_CACHE_BYTES
from mortal_steps.system.resources import available_bytes, total_bytes

VLLM_SHARE = 0.92
"""What vLLM takes of a GPU by default."""
VLLM_OVERHEAD = 1.5 * GIB
"""About what vLLM takes beside weights, keys and values: CUDA, its graphs, one pass of a batch."""
PROCESS = 410_000_000
"""What a worker process takes on a CPU before it has a model: Python, torch, TRL."""
BESIDE = 500_000_000
"""About what the flow, the reward worker and the Prefect server take together."""
MACHINE = "this machine"
USUAL_PROMPT = 512
"""Tokens of a prompt where nobody has measured any."""


@dataclass(frozen=True, kw_only=True, slots=True)
class EngineMemory:
    """What one rollout worker takes of each of its GPUs, in bytes."""

    weights: int
    cache: int
    """Room for keys and values."""
    fixed: int
    """What it takes whatever a batch is like."""
    reserved: int
    """All that it takes."""
    tokens: int
    """Tokens that the keys and values of fit in."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Card:
    """One GPU and what is on it."""

    gpu: Gpu
    training: TrainingMemory | None
    """None: the actor is elsewhere."""
    engines: Sequence[EngineMemory]
    static: int
    """Bytes that are taken whatever a batch is like."""
    most: int
    """Bytes at the fullest moment."""
    copy: int = 0
    """On the machine: what a checkpoint that is written beside train steps takes."""
    free: int | None = None
    """On the machine: what other programs leave of it now."""

    @property
    def is_machine(self) -> bool:
        """Whether this is the memory of the machine, for a run on its CPU."""
        return self.gpu.uuid == MACHINE

    @property
    def depends_on_batch(self) -> bool:
        """Whether a smaller batch would take less of it."""
        return self.most > self.static

    @property
    def name(self) -> str:
        """Such as `GPU 0, NVIDIA A10G, 22.0 GiB`."""
        number = f"GPU {self.gpu.address}, " if self.gpu.address else ""
        return f"{number}{self.gpu.name}, {gib(self.gpu.memory)} GiB"


@dataclass(frozen=True, kw_only=True, slots=True)
class ForecastPlan:
    """What is known of a run whose defaults are resolved."""

    trainer: TrainerPlan
    compute: ComputeConfig
    place: Place
    sampled_model: ModelConfig
    max_tokens: int
    """Most tokens per generated completion."""
    num_shards: int
    problems_per_shard: int
    saves_beside: bool
    """Whether checkpoints are written beside train steps."""
    changed: Callable[[Sequence[str]], "ForecastPlan"]
    """Returns the same with overrides of the configuration, such as `rollout.num_shards = 2`."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Forecast:
    """A run's cards, before it begins."""

    plan: ForecastPlan
    placement: Placement
    shape: ModelShape | None
    prompt: int
    """Tokens of the longest prompt."""
    teacher: tuple[ModelConfig, ModelShape] | None = None
    """The model that is learned from, if there is one whose sizes are known."""

    @property
    def sampling(self) -> RolloutConfig:
        """The settings of the rollout workers, on the GPUs that are there now."""
        placed = self.plan.place.placed()
        if not self.plan.compute.place.here and not self.placement.shares:
            return placed.rollout  # each on a machine of its own
        return sharing_gpus(placed.compute.local, placed.rollout, placed.num_rollout_workers)

    @property
    def rows_per_shard(self) -> int:
        """Completions that an engine samples for a shard, at most: a shard has whole groups."""
        return self.plan.problems_per_shard * self.plan.trainer.training.num_generations

    def _engine_memory(self, shape: ModelShape, gpu: Gpu) -> EngineMemory | None:
        rows = self.rows_per_shard
        tokens = rows * (self.prompt + self.plan.max_tokens)
        return engine_memory(
            *(self.sampling, self.plan.sampled_model, shape, gpu), rows=rows, tokens=tokens
        )

    @property
    def on_cpu(self) -> bool:
        """Whether all workers compute on the CPU of this machine."""
        return self.plan.compute.place.here and not self.placement.gpus

    def cards(self) -> list[Card]:
        """Return the GPUs that the run uses, or the machine; empty if the model's sizes, or the
        machine's, are not known."""
        if self.shape is None:
            return []
        if self.on_cpu:
            memory = total_bytes()
            return [] if memory is None else [self._machine(memory, self.shape)]
        return [self._card(gpu, self.shape) for gpu in self.placement.gpus if gpu.memory]

    def _machine(self, memory: int, shape: ModelShape) -> Card:
        model, training = self.plan.trainer.model, self.plan.trainer.training
        gpu = Gpu(name=MACHINE, memory=memory, bfloat16=False, uuid=MACHINE)
        needed = training_memory(
            *(model, training, shape),
            prompt=self.prompt,
            autocast=bool(training.trl.get("bf16")),
            on_gpu=False,
            teacher=self.teacher,
        )
        workers = self.plan.place.placed().num_rollout_workers if self.placement.engines else 0
        found = [self._engine_memory(shape, gpu) for _ in range(workers)]
        engines = [one for one in found if one is not None]
        # Weights and the optimizer's tensors, as `state.take_state` copies them.
        trained = needed.gradients if training.use_lora else needed.weights
        copy = needed.optimizer + trained if self.plan.saves_beside else 0
        beside = BESIDE + training.ranks * PROCESS
        return Card(
            gpu=gpu,
            training=needed,
            engines=engines,
            static=beside + training.ranks * needed.static + sum(one.fixed for one in engines),
            most=beside
            + training.ranks * (needed.total + copy)
            + sum(one.reserved for one in engines),
            copy=copy,
            free=available_bytes(),
        )

    def _card(self, gpu: Gpu, shape: ModelShape) -> Card:
        plan, trainers = self.plan.trainer, self.placement.trainers
        training = None
        if gpu.uuid in {each.uuid for each in trainers}:
            options = plan.training.trl
            half = bool(options.get("fp16")) or (gpu.bfloat16 and options.get("bf16") is not False)
            training = training_memory(
                *(plan.model, plan.training, shape),
                prompt=self.prompt,
                autocast=half,
                teacher=self.teacher,
            )
        here = [gpus for gpus in self.placement.engines if gpu.uuid in {one.uuid for one in gpus}]
        found = [self._engine_memory(shape, gpu) for _ in here]
        engines = [one for one in found if one is not None]
        fixed = sum(one.fixed for one in engines)
        sampling = sum(one.reserved for one in engines)
        if training is None:
            return Card(gpu=gpu, training=None, engines=engines, static=fixed, most=sampling)
        static, most = training.static + CONTEXT, training.total + CONTEXT
        if plan.rollout.sleep_while_training:  # the engines or the gradients, in turn
            awake = static - training.gradients
            static, most = max(static, awake + fixed), max(most, awake + sampling)
        else:
            static, most = static + fixed, most + sampling
        return Card(gpu=gpu, training=training, engines=engines, static=static, most=most)


def forecast(plan: ForecastPlan, prompt: int | None, *, samples: bool = True) -> Forecast:
    """Work out what a run will do, with a longest prompt of so many tokens (None:
    unknown) and, without `samples`, no rollout workers. Raises what `Place.placement` raises."""
    found = plan.place.placement(samples=samples)
    known = found.gpus or plan.compute.place.here
    shape = find_shape(plan.trainer.model) if known else None
    model = plan.trainer.algorithm.teacher_model
    sizes = find_shape(model) if known and model else None
    return Forecast(
        plan=plan,
        placement=found,
        shape=shape,
        prompt=prompt or USUAL_PROMPT,
        teacher=(model, sizes) if model and sizes else None,
    )


def engine_memory(
    rollout: RolloutConfig,
    model: ModelConfig,
    shape: ModelShape,
    gpu: Gpu,
    *,
    rows: int,
    tokens: int,
) -> EngineMemory | None:
    """Return what a rollout worker takes of a GPU, or of the machine, with `model` as it is sampled
    and `rows` completions at once, of so many `tokens` together with their prompts; None for an
    engine of the user's own."""
    kind, options = rollout.engine_kind, rollout.engine_options
    size, dtype = gpus_per_engine(rollout), model.dtype
    value = BYTES.get((shape.dtype if dtype == "auto" else dtype) or "float32", 4)
    weights = value * shape.parameters // size
    per_token = max(1, 2 * value * shape.layers * shape.keys // size)
    on_cpu = gpu.uuid == MACHINE
    process = PROCESS if on_cpu else CONTEXT
    if kind.memory_option is not None and on_cpu:
        usual = KV_CACHE_SEQUENCES * per_token * model.max_model_len
        room = options.get("kv_cache_memory_bytes") or max(MIN_KV_CACHE_BYTES, usual)
        cache = int(room)
        always = reserved = weights + process + cache
    elif kind.memory_option is not None:
        reserved = round(float(options.get(kind.memory_option, VLLM_SHARE)) * gpu.memory)
        cache = max(0, round(reserved - weights - VLLM_OVERHEAD))
        if room := options.get("kv_cache_memory_bytes"):
            cache, reserved = int(room), round(int(room) + weights + VLLM_OVERHEAD)
        always = reserved
    elif kind.needs is None:
        cache = tokens * per_token
        always = weights + process
        reserved = always + cache + 3 * 4 * rows * shape.vocabulary
    else:
        return None
    return EngineMemory(
        weights=weights,
        cache=cache,
        fixed=always,
        reserved=reserved,
        tokens=cache // per_token,
    )


def gib(num_bytes: float) -> str:
    """Return a size in GiB, such as `1.5`."""
    return f"{num_bytes / GIB:.1f}"
