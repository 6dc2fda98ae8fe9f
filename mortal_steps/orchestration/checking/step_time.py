"""Estimates how long a train step takes on a CPU: the operations that follow from the model's
shape, at the rate at which this machine multiplies such matrices.

All completions are counted at full length, and all prompts as long as the longest. The estimate is
a range: what is no matrix product (norms, attention's softmax, the optimizer, drawing tokens) takes
up to as long again.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from mortal_steps.models.shape import ModelShape
from mortal_steps.orchestration.batch_sources.table import GENERATE
from mortal_steps.orchestration.checking.forecast import Forecast
from mortal_steps.policy.cpu_rates import Product
from mortal_steps.policy.plan import TrainerPlan

SLOW_S = 300.0
"""Seconds of a step from which on the user is warned."""
HIGHEST_RATE = 200e9
"""Operations per second that no core exceeds in float32, where nothing is measured."""
SPREAD = 2.0
"""How much longer than its matrix products a step may take."""
LAYER_S = 0.0004
"""Seconds that Python takes to call the kernels of one layer, whatever the size of its matrices."""
STEP_S = 0.12
"""Seconds of a step beside training and sampling: tasks, records, rewards that take no time."""
PER_BYTE_S = 4e-9
"""Seconds to write, digest, load and compare a byte of published weights."""
MEASURED_ROWS = 512
"""Tokens in a product that is measured for training, at most."""


@dataclass(frozen=True, kw_only=True, slots=True)
class StepWork:
    """What one step computes."""

    training: float
    """Floating point operations of the actor."""
    prefill: float
    """Those of one rollout worker on prompts, and `decode` on the tokens that it samples."""
    decode: float
    train_calls: int
    """Calls of a layer in the actor, forwards and backwards, and `decode_calls` in a worker."""
    decode_calls: int
    published: int
    """Bytes of weights."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Rates:
    """Floating point operations per second."""

    training: float
    prefill: float
    decode: float
    slowdown: float | None = None
    """How many times slower products in bfloat16 are than in float32, where bfloat16 is used."""


@dataclass(frozen=True, kw_only=True, slots=True)
class StepTime:
    """Seconds of a step, at least."""

    sampling: float
    training: float
    total: float


def is_estimated(found: Forecast) -> bool:
    """Whether all of the run computes on this machine's CPU, with a model of known sizes."""
    generates = found.plan.trainer.rollout.source == GENERATE
    return found.on_cpu and found.shape is not None and generates


def work_of(found: Forecast) -> StepWork:
    """Count the operations of a step; needs `is_estimated`."""
    plan, shape = found.plan, found.shape
    assert shape is not None
    training = plan.trainer.training
    length = found.prompt + training.max_completion_length
    forward = _forward(shape, length)
    passes = _passes(plan.trainer)
    micro_batches = training.steps_per_generation * training.num_iterations
    rows = found.rows_per_shard
    workers = max(1, len(found.placement.engines))
    shards = -(-plan.num_shards // workers) if found.placement.engines else 0
    sampled = found.prompt + plan.max_tokens
    return StepWork(
        training=training.rows * length * forward * passes * training.num_iterations,
        prefill=shards * rows * found.prompt * _forward(shape, found.prompt),
        decode=shards * rows * plan.max_tokens * _forward(shape, sampled),
        train_calls=round(micro_batches * passes * shape.layers),
        decode_calls=shards * plan.max_tokens * shape.layers,
        published=0 if training.publishes_adapter else 4 * shape.parameters,
    )


def _forward(shape: ModelShape, length: int) -> float:
    """Return the operations of a forward pass for one token of a sequence of this length."""
    hidden = shape.hidden
    layer = 2 * hidden * (shape.attention + shape.keys) + 3 * hidden * shape.mlp
    attention = 4 * shape.attention * length
    return 2 * (shape.layers * layer + shape.embedding) + shape.layers * attention


def _passes(plan: TrainerPlan) -> float:
    """Return how many forward passes train once: a backward pass is two, or one where the weights
    themselves get no gradients."""
    training = plan.training
    again = training.gradient_checkpointing
    reference = training.beta > 0
    recomputed = plan.corrects_importance or training.num_iterations > 1
    backward = 1 if training.use_lora else 2
    return 1 + backward + again + (reference + recomputed) / training.num_iterations


def products_of(found: Forecast) -> tuple[Product, ...]:
    """Return the products to measure: of training, prefill and decoding, then, where bfloat16 is
    used, of training in both types."""
    plan, shape = found.plan, found.shape
    assert shape is not None
    local, model, training = plan.compute.local, plan.trainer.model, plan.trainer.training
    stored = model.dtype if model.dtype != "auto" else shape.dtype or "float32"
    trained = "bfloat16" if training.trl.get("bf16") else stored
    own = plan.sampled_model.dtype
    sampled = stored if own == "auto" else own
    tokens = training.rows // training.steps_per_generation * found.prompt
    many = min(MEASURED_ROWS, max(tokens, training.num_generations))

    def product(rows: int, dtype: str, threads: int | None) -> Product:
        return Product(
            rows=rows, inner=shape.hidden, columns=shape.mlp, dtype=dtype, threads=threads or 1
        )

    actor, rollout = local.actor.threads, local.rollout.threads
    rows = found.rows_per_shard
    usual = (product(many, trained, actor), product(many, sampled, rollout))
    both = [product(many, dtype, actor) for dtype in ("float32", "bfloat16")]
    compared = both if "bfloat16" in (trained, sampled) else []
    return (*usual, product(rows, sampled, rollout), *compared)


def rates_of(measured: Sequence[float]) -> Rates:
    """Return what `products_of` was measured at."""
    training, prefill, decode, *compared = measured
    slowdown = compared[0] / compared[1] if compared else None
    return Rates(training=training, prefill=prefill, decode=decode, slowdown=slowdown)


def step_time(found: Forecast, rates: Rates) -> StepTime:
    """Return the seconds that a step takes at these rates, at least."""
    work, plan = work_of(found), found.plan.trainer
    sampling = work.prefill / rates.prefill + work.decode / rates.decode
    sampling += LAYER_S * work.decode_calls
    training = work.training / rates.training / plan.training.ranks
    training += LAYER_S * work.train_calls
    both = max(sampling, training) if plan.rollout.staleness else sampling + training
    return StepTime(
        sampling=sampling,
        training=training,
        total=both + STEP_S + PER_BYTE_S * work.published,
    )


def time_in_words(found: Forecast, rates: Rates) -> str:
    """Such as `about 13 to 26 s a step with completions of full length (sampling from ...)`."""
    time = step_time(found, rates)
    return (
        f"about {_range(time.total)} a step with completions of full length (sampling from "
        f"{_seconds(time.sampling)}, training from {_seconds(time.training)}; matrices at "
        f"{rates.training / 1e9:,.0f} GFLOP/s)"
    )


def warnings_of_time(found: Forecast, rates: Rates | None) -> list[str]:
    """Return a sentence if a step takes minutes, by measured rates or else by the highest that a
    CPU may have, and one if bfloat16 is slower here than float32."""
    if not is_estimated(found):
        return []
    warned = []
    plan = found.plan
    threads = plan.compute.local.actor.threads or 1
    best = Rates(
        training=threads * HIGHEST_RATE,
        prefill=HIGHEST_RATE,
        decode=HIGHEST_RATE,
    )
    shortest = step_time(found, rates or best).total
    if shortest > SLOW_S:
        takes = f"about {_range(shortest)}" if rates else f"more than {_seconds(shortest)}"
        training = plan.trainer.training
        warned.append(
            f"a step takes {takes} on this CPU if its {training.rows} completions become "
            f"{plan.max_tokens:,} tokens long. Shorter steps: a lower "
            "training.max_completion_length, training.batch_size or training.num_generations, a "
            "smaller model, or a GPU"
        )
    if rates and rates.slowdown is not None and rates.slowdown > 1.2:
        warned.append(
            f"this CPU multiplies matrices in bfloat16 {rates.slowdown:.1f} times slower than in "
            'float32 (measured); set model.dtype = "float32" and leave training.trl.bf16 out, '
            "unless memory is short"
        )
    return warned


def measured_time(
    found: Forecast, measure: Callable[[tuple[Product, ...]], Sequence[float]]
) -> Rates | None:
    """Return the rates of this machine for a run on its CPU; None for another run."""
    return rates_of(measure(products_of(found))) if is_estimated(found) else None


def _range(seconds: float) -> str:
    low, high = _rounded(seconds), _rounded(SPREAD * seconds)
    if high >= SLOW_S:
        return f"{_rounded(low / 60):g} to {_rounded(high / 60):g} min"
    return f"{low:g} to {high:g} s"


def _seconds(seconds: float) -> str:
    small = seconds < SLOW_S
    return f"{_rounded(seconds):g} s" if small else f"{_rounded(seconds / 60):g} min"


def _rounded(seconds: float) -> float:
    """Return it with two digits: the third would be a pretence."""
    return float(f"{seconds:.2g}")
