"""Tells which worker is on which GPU, and refuses a GPU that is too small whatever the batch.

Counted are the actor's weights, gradients and optimizer, and what each engine takes when it starts.
What a batch needs on top shows in the first train step, whose error names settings that take less.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence

from mortal_steps.compute.devices import Gpu
from mortal_steps.compute.placement import (
    Placement,
    find_placement,
    gpus_per_engine,
    placed_config,
    sharing_gpus,
)
from mortal_steps.config import RunConfig, TrainingConfig
from mortal_steps.config.gpus import GIB
from mortal_steps.errors import ConfigError
from mortal_steps.models.size import ModelSize, find_size
from mortal_steps.report.units import counted

logger = logging.getLogger(__name__)

CUDA = 0.6 * GIB
"""What CUDA, cuBLAS and the kernels take in each process."""
VLLM_SHARE = 0.92
"""What vLLM takes of a GPU by default."""


def check_room(
    config: RunConfig, *, samples: bool = True, show: Callable[[str], None] = lambda line: None
) -> None:
    """Call `show` with a line on each GPU of a settled configuration; without `samples`, it has no
    rollout workers.

    Raise `ConfigError` for a GPU without room; where the size of the model is a guess, log a
    warning instead. Raise what `find_placement` does.
    """
    found = find_placement(config, samples=samples)
    show(f"placement  {placement_in_words(found)}")
    show(f"batch      {_batch(config.training)}")
    size = find_size(config.model) if found.gpus else None
    if size is None:
        return
    for gpu in found.gpus:
        parts = dict(_parts(config, found, gpu, size))
        needed = sum(parts.values())
        if config.rollout.sleep_while_training:  # engines and gradients take the memory in turn
            gradients = size.gradients(config.model, config.training)
            needed = max(parts.get("actor", 0), needed - gradients)
        named = ", ".join(f"{who} {_gib(taken)}" for who, taken in parts.items())
        words = f"{_name(gpu)}: {_gib(needed)} GiB before any batch ({named})"
        show(f"memory     {words}")
        if needed > gpu.memory:
            _refuse(f"{words}, which it does not have. {_remedy(config)}", size)


def placement_in_words(found: Placement) -> str:
    """Describe it, such as `actor on GPU 0 (NVIDIA A10G), 1 rollout worker on GPU 1 (...)`."""
    count = len(found.engines)
    workers = counted(count, "rollout worker")
    actor = _named([found.actor] if found.actor else [])
    if found.shares and len(found.gpus) == 1:
        return f"actor and {workers} on {actor}"
    sampling = {gpu.uuid: gpu for gpus in found.engines for gpu in gpus}
    each = "one each on " if 1 < count == len(sampling) else "on "
    return f"actor on {actor}, {workers} {each}{_named(list(sampling.values()))}"


def _named(gpus: Sequence[Gpu]) -> str:
    if not gpus:
        return "the CPU"
    name = gpus[0].name
    numbers = ", ".join(gpu.address for gpu in gpus if gpu.address)
    if not numbers:
        return f"{len(gpus)} {name}" if len(gpus) > 1 else f"one {name}"
    return f"GPU {numbers} ({name})"


def _name(gpu: Gpu) -> str:
    number = f"GPU {gpu.address}, " if gpu.address else ""
    return f"{number}{gpu.name}, {_gib(gpu.memory)} GiB"


def _batch(training: TrainingConfig) -> str:
    count = training.steps_per_generation
    pieces = "1 micro-batch" if count == 1 else f"{count:,} micro-batches"
    return (
        f"{training.rows} completions, trained in {pieces} of {training.rows // count} "
        f"(training.gradient_accumulation_steps = {training.accumulation_steps})"
    )


def _parts(
    config: RunConfig, found: Placement, gpu: Gpu, size: ModelSize
) -> Iterator[tuple[str, float]]:
    """Yield who takes how many bytes of a GPU."""
    if found.actor is not None and found.actor.uuid == gpu.uuid:
        yield "actor", size.training(config.model, config.training) + CUDA
    workers = sum(gpu.uuid in {one.uuid for one in gpus} for gpus in found.engines)
    if workers:
        alone = config.compute.backend == "modal" and not found.shares
        placed = placed_config(config)
        each = _engine(placed if alone else sharing_gpus(placed), gpu, size)
        yield counted(workers, "rollout worker"), workers * each


def _engine(config: RunConfig, gpu: Gpu, size: ModelSize) -> float:
    """Return what a rollout worker takes; 0 for an engine of the user's own."""
    kind, options = config.rollout.engine_kind, config.rollout.engine_options
    weights = size.weights(config.sampled_model) / gpus_per_engine(config)
    if kind.memory_option is None:
        return weights + CUDA if kind.needs is None else 0.0
    reserved = float(options.get(kind.memory_option, VLLM_SHARE)) * gpu.memory
    if reserved < weights:
        _refuse(
            f"{_name(gpu)}: {config.rollout.engine} gets {_gib(reserved)} GiB of it, and its "
            f"weights take {_gib(weights)} GiB. Raise rollout.engine_options.{kind.memory_option}, "
            "or give it a GPU of its own",
            size,
        )
    return reserved


def _refuse(problem: str, size: ModelSize) -> None:
    if size.counted:
        raise ConfigError(problem)
    logger.warning("%s. This is a guess: the model's parameters could not be counted here", problem)


def _remedy(config: RunConfig) -> str:
    """Name settings that take less."""
    model = config.model
    ways = ["a GPU with more memory"]
    if model.dtype == "float32" and not model.quantization:
        ways.insert(0, 'model.dtype = "bfloat16" with LoRA')
    if not config.training.use_lora:
        ways.insert(0, "training.use_lora = true")
    return f"Less is taken with {', or '.join(ways)}"


def _gib(num_bytes: float) -> str:
    return f"{num_bytes / GIB:.1f}"
