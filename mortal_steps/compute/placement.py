"""Decides which GPUs the actor and each rollout worker of a run are on.

The actor takes the first GPU, or as many as it has ranks, and each of the others gets a rollout
worker; a GPU that is alone is shared by the actor and one rollout worker. What a configuration says
stands. None of this decides bits, so it is found out anew whenever a run starts or resumes.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from mortal_steps.compute.cluster.gpus import gpus_on_a_node
from mortal_steps.compute.devices import Gpu, devices_of, gpus_of_role, named
from mortal_steps.compute.modal.gpus import gpus_on_modal
from mortal_steps.config import LocalConfig, RoleConfig, RolloutConfig, RunConfig
from mortal_steps.errors import ConfigError
from mortal_steps.system.gpus import has_gpu

logger = logging.getLogger(__name__)

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


def find_placement(config: RunConfig, *, samples: bool = True) -> Placement:
    """Find where a run's workers are; without `samples`, it has no rollout workers. Raises
    `ConfigError` for GPUs that are not there or would be paid for and do nothing."""
    if config.compute.backend == "modal":
        return Placement(**gpus_on_modal(config, gpus_per_engine(config.rollout), samples))
    if config.compute.backend == "ray":
        return _place_on_ray(config, samples)
    placed = placed_config(config)
    workers = placed.num_rollout_workers if samples else 0
    (trainers,) = _used_by(placed.compute.local, "actor", 1, config.training.ranks)
    size = gpus_per_engine(config.rollout)
    engines = _used_by(placed.compute.local, "rollout", workers, size)
    used = {gpu.uuid for gpus in (trainers, *engines) for gpu in gpus}
    local = config.compute.local
    there = {**gpus_of_role(local, "actor"), **gpus_of_role(local, "rollout")}
    idle = {gpu.uuid: gpu for gpu in there.values() if gpu.uuid not in used}
    return Placement(trainers=trainers, engines=engines, idle=tuple(idle.values()))


def placed_config(config: RunConfig) -> RunConfig:
    """Return the configuration of a run on this machine, with the devices of the actor and of the
    rollout workers, and with the number of these, as this machine has GPUs."""
    if config.compute.is_away:
        return config
    local = config.compute.local
    of_actor, of_engines = gpus_of_role(local, "actor"), gpus_of_role(local, "rollout")
    actor, rollout = devices_of(local.actor), devices_of(local.rollout)
    reserved = {of_engines[name].uuid for devices in rollout for name in named(devices)}
    if not actor and of_actor:
        free = [name for name, gpu in of_actor.items() if gpu.uuid not in reserved]
        ranks = config.training.ranks
        actor = (",".join((free if len(free) >= ranks else list(of_actor))[:ranks]),)
    workers = config.rollout.num_rollout_workers
    trains_on = {of_actor[name].uuid for devices in actor for name in named(devices)}
    if not rollout and of_engines:
        free = [name for name, gpu in of_engines.items() if gpu.uuid not in trains_on]
        size = gpus_per_engine(config.rollout)
        rollout = _grouped(free, size) or _grouped(list(of_engines), size)[: workers or 1]
    if workers is None and any(map(named, rollout)):
        single = config.compute.mode == "single_node"
        workers = 1 if single else len(rollout)
    several = len(of_actor | of_engines) > 1
    roles = {
        "actor": _with_devices(local.actor, actor if several else ()),
        "rollout": _with_devices(local.rollout, rollout[:workers] if several else ()),
    }
    return config.model_copy(
        update={
            "rollout": config.rollout.model_copy(update={"num_rollout_workers": workers}),
            "compute": config.compute.model_copy(update={"local": local.model_copy(update=roles)}),
        }
    )


def _with_devices(role_config: RoleConfig, devices: Sequence[str]) -> RoleConfig:
    if devices_of(role_config):
        return role_config
    return role_config.model_copy(update={"devices": tuple(devices)})


def _grouped(names: Sequence[str], size: int) -> tuple[str, ...]:
    """Values of CUDA_VISIBLE_DEVICES of so many GPUs each."""
    ends = range(size, len(names) + 1, size)
    return tuple(",".join(names[end - size : end]) for end in ends)


def _used_by(
    local: LocalConfig, role: Literal["actor", "rollout"], count: int, size: int
) -> tuple[tuple[Gpu, ...], ...]:
    """Return the GPUs of each of so many workers of a role, each on `size` of them."""
    gpus, devices = gpus_of_role(local, role), devices_of(getattr(local, role))
    if not devices:
        return (tuple(gpus.values())[:size],) * count
    return tuple(
        tuple(gpus[name] for name in named(devices[index % len(devices)])) for index in range(count)
    )


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
    on_one = -(-workers // max(len(devices_of(local.rollout)), 1))
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


def check_devices(config: RunConfig, *, samples: bool = True) -> None:
    """Raise `ConfigError` for devices that do not exist, another number of GPUs than the actor has
    ranks, and GPUs on Modal that would do nothing; warn of GPUs of this machine that do nothing."""
    if config.compute.backend == "modal":
        config.compute.check_mode()
        find_placement(config, samples=samples)
    if config.compute.is_away:
        return  # where `devices` are of no account
    local = config.compute.local
    ranks = config.training.ranks
    for devices in local.actor.devices:
        if len(named(devices)) > ranks:
            raise ConfigError(
                f"compute.local.actor.devices names {devices!r}, and training.ranks = {ranks} of "
                f"these GPUs are trained on. Name {ranks}, and give the others to rollout workers "
                "with compute.local.rollout.devices; or raise training.ranks"
            )
    found = find_placement(config, samples=samples)
    if 0 < len(found.trainers) < ranks:
        raise ConfigError(
            f"training.ranks = {ranks} processes train on a GPU each, and the actor has "
            f"{len(found.trainers)}; lower training.ranks, or name so many GPUs in one text of "
            "compute.local.actor.devices, such as '0,1'"
        )
    if not samples:
        return
    size = gpus_per_engine(config.rollout)
    few = next((gpus for gpus in found.engines if 0 < len(gpus) < size), None)
    if few is not None:
        raise ConfigError(
            f"an engine is to compute on {size} GPUs (rollout.engine_options, "
            f"{' and '.join(PARALLEL)}), and one has {len(few)}; lower these options, or name "
            f"{size} in each text of compute.local.rollout.devices"
        )
    if config.rollout.sleep_while_training:
        _check_sleep(found)
    if found.idle:
        _warn_of_idle_gpus(config, found)


def _warn_of_idle_gpus(config: RunConfig, found: Placement) -> None:
    workers, devices = config.rollout.num_rollout_workers, config.compute.local.rollout.devices
    idle = f"GPU {', '.join(gpu.address for gpu in found.idle)}"
    does = "does nothing" if len(found.idle) == 1 else "do nothing"
    if config.compute.mode == "single_node":
        why = (
            "compute.mode = 'single_node' has one rollout worker. With 'distributed', which is "
            "mode=Distributed() in Python, each gets one"
        )
    elif workers is not None:
        names = "compute.local.rollout.devices names" if devices else "this machine has"
        why = (
            f"{names} more GPUs than rollout.num_rollout_workers = {workers} use. Leave "
            "num_rollout_workers out, and each gets a rollout worker"
        )
    elif not devices:
        why = f"an engine takes {gpus_per_engine(config.rollout)} (rollout.engine_options)"
    else:
        return
    logger.warning("%s %s: %s", idle, does, why)


def _check_sleep(found: Placement) -> None:
    """Raise `ConfigError` unless sleeping rollout workers free memory of the actor's GPU."""
    why = None
    if not found.gpus:
        why = "this machine has no GPU, and vLLM on a CPU cannot sleep"
    elif not found.shares:
        why = "the rollout workers have GPUs of their own"
    if why is not None:
        raise ConfigError(f"rollout.sleep_while_training = true: {why}; leave it out")


def _place_on_ray(config: RunConfig, samples: bool) -> Placement:
    ray, size = config.compute.ray, gpus_per_engine(config.rollout)
    workers = range(config.num_rollout_workers if samples else 0)
    return Placement(
        trainers=gpus_on_a_node(ray.actor, config.training.ranks, "actor"),
        engines=tuple(gpus_on_a_node(ray.rollout, size, f"rollout-{n}") for n in workers),
    )
