"""GPUs and who is on them: what workers take of a GPU that they share."""

from __future__ import annotations

from dataclasses import dataclass

from mortal_steps.compute.devices import Gpu, devices_of, gpus_of_role
from mortal_steps.config import LocalConfig, RolloutConfig
from mortal_steps.system.gpus import has_gpu

SAMPLERS_SHARE = 0.6
"""Part of a GPU's memory that is divided equally among the actor and the rollout workers on it: so
one rollout worker beside the actor takes 0.3, as with TRL."""
FREE_GPU = 0.9
"""Part of a GPU's memory that the rollout workers on it take together if the actor is elsewhere."""
PARALLEL = ("tensor_parallel_size", "pipeline_parallel_size")
"""Options of an engine that computes on several GPUs."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Placement:
    """The GPUs of a run."""

    trainers: tuple[Gpu, ...]
    """The GPU of each of the actor's ranks; none: it trains on the CPU."""
    engines: tuple[tuple[Gpu, ...], ...]
    """The GPUs of each rollout worker; none: it samples on the CPU."""
    idle: tuple[Gpu, ...] = ()
    """Those that the run does not use."""

    @property
    def gpus(self) -> tuple[Gpu, ...]:
        used = [*self.trainers, *(gpu for gpus in self.engines for gpu in gpus)]
        return tuple({gpu.uuid: gpu for gpu in used}.values())

    @property
    def shares(self) -> bool:
        """Whether a rollout worker is on a GPU of the actor's."""
        sampling = {gpu.uuid for gpus in self.engines for gpu in gpus}
        return not sampling.isdisjoint(gpu.uuid for gpu in self.trainers)


def gpus_per_engine(rollout: RolloutConfig) -> int:
    size = 1
    for option in PARALLEL:
        value = rollout.engine_options.get(option, 1)
        size *= value if isinstance(value, int) and value > 0 else 1
    return size


def have_bfloat16(found: Placement) -> bool:
    """Return whether actor and rollout workers compute on GPUs that support bfloat16."""
    computing = [found.trainers, *found.engines]
    return all(gpus and all(gpu.bfloat16 for gpu in gpus) for gpus in computing)


def sharing_gpus(local: LocalConfig, rollout: RolloutConfig, workers: int) -> RolloutConfig:
    """Return the settings for one of so many rollout workers of this machine: where several
    workers, or the actor, are on its GPU, `engine_options` say how much of the memory it takes,
    unless they do. It has no effect on a machine without a GPU."""
    key = rollout.engine_kind.memory_option
    share = _share(local, workers)
    if key is None or share is None or key in rollout.engine_options:
        return rollout
    return rollout.model_copy(update={"engine_options": {**rollout.engine_options, key: share}})


def measures_memory(local: LocalConfig, rollout: RolloutConfig, workers: int) -> bool:
    """Return whether a rollout worker of this machine measures, while it starts, how much memory is
    free on a GPU that it shares with the actor or with others."""
    measures = rollout.engine_kind.memory_option is not None
    return has_gpu() and measures and _share(local, workers) is not None


def _share(local: LocalConfig, workers: int) -> float | None:
    """Return the part of a GPU's memory for one rollout worker; None if the GPU is its own."""
    on_one = -(-workers // max(len(set(devices_of(local.rollout))), 1))
    if _overlap(local):
        return round(SAMPLERS_SHARE / (on_one + 1), 3)
    return round(FREE_GPU / on_one, 3) if on_one > 1 else None


def _overlap(local: LocalConfig) -> bool:
    """Whether actor and rollout workers have a GPU in common, whatever each calls it. A role that
    names no devices sees all of them."""
    if not devices_of(local.actor) or not devices_of(local.rollout):
        return True
    training = {gpu.uuid for gpu in gpus_of_role(local, "actor").values()}
    return any(gpu.uuid in training for gpu in gpus_of_role(local, "rollout").values())
