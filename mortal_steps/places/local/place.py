"""This machine: which of its GPUs the actor and each rollout worker of a run are on.

The actor takes the first GPU, or as many as it has ranks, and each of the others gets a rollout
worker; a GPU that is alone is shared by the actor and one rollout worker. What a configuration says
stands. None of this decides bits, so it is found out anew whenever a run starts or resumes.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import replace
from typing import Literal

from mortal_steps.compute.devices import Gpu, devices_of, gpus_of_role, named
from mortal_steps.compute.placement import PARALLEL, Placement, gpus_per_engine
from mortal_steps.compute.pool import Compute
from mortal_steps.config import LocalConfig, RoleConfig
from mortal_steps.errors import ConfigError
from mortal_steps.places.base import Place, WantedWorkers
from mortal_steps.places.plan import PlacePlan

logger = logging.getLogger(__name__)


class LocalPlace(Place):
    """Processes on this machine."""

    def compute(self, wanted: WantedWorkers) -> Compute:
        return wanted.here(wanted.specs)

    def placement(self, *, samples: bool = True) -> Placement:
        placed, size = self.placed(), gpus_per_engine(self.plan.rollout)
        workers = placed.num_rollout_workers if samples else 0
        (trainers,) = _used_by(placed.compute.local, "actor", 1, self.plan.ranks)
        engines = _used_by(placed.compute.local, "rollout", workers, size)
        used = {gpu.uuid for gpus in (trainers, *engines) for gpu in gpus}
        local = self.plan.compute.local
        there = {**gpus_of_role(local, "actor"), **gpus_of_role(local, "rollout")}
        idle = {gpu.uuid: gpu for gpu in there.values() if gpu.uuid not in used}
        return Placement(trainers=trainers, engines=engines, idle=tuple(idle.values()))

    def placed(self) -> PlacePlan:
        """Return the plan with the devices of the actor and of the rollout workers, and with the
        number of these, as this machine has GPUs."""
        plan, local = self.plan, self.plan.compute.local
        of_actor, of_engines = gpus_of_role(local, "actor"), gpus_of_role(local, "rollout")
        actor, rollout = devices_of(local.actor), devices_of(local.rollout)
        reserved = {of_engines[name].uuid for devices in rollout for name in named(devices)}
        if not actor and of_actor:
            free = [name for name, gpu in of_actor.items() if gpu.uuid not in reserved]
            actor = (",".join((free if len(free) >= plan.ranks else list(of_actor))[: plan.ranks]),)
        workers = plan.rollout.num_rollout_workers
        trains_on = {of_actor[name].uuid for devices in actor for name in named(devices)}
        if not rollout and of_engines:
            free = [name for name, gpu in of_engines.items() if gpu.uuid not in trains_on]
            size = gpus_per_engine(plan.rollout)
            rollout = _grouped(free, size) or _grouped(list(of_engines), size)[: workers or 1]
        if workers is None and any(map(named, rollout)):
            single = plan.compute.mode == "single_node"
            workers = 1 if single else len(rollout)
        several = len(of_actor | of_engines) > 1
        roles = {
            "actor": _with_devices(local.actor, actor if several else ()),
            "rollout": _with_devices(local.rollout, rollout[:workers] if several else ()),
        }
        return replace(
            plan,
            rollout=plan.rollout.model_copy(update={"num_rollout_workers": workers}),
            num_rollout_workers=workers or plan.num_rollout_workers,
            compute=plan.compute.model_copy(update={"local": local.model_copy(update=roles)}),
        )

    def check(self, *, samples: bool) -> None:
        """Raise `ConfigError` for devices that do not exist, and another number of GPUs than the
        actor has ranks; warn of GPUs that do nothing."""
        plan, local = self.plan, self.plan.compute.local
        ranks = plan.ranks
        for devices in local.actor.devices:
            if len(named(devices)) > ranks:
                raise ConfigError(
                    f"compute.local.actor.devices names {devices!r}, and training.ranks = {ranks} "
                    f"of these GPUs are trained on. Name {ranks}, and give the others to rollout "
                    "workers with compute.local.rollout.devices; or raise training.ranks"
                )
        found = self.placement(samples=samples)
        if 0 < len(found.trainers) < ranks:
            raise ConfigError(
                f"training.ranks = {ranks} processes train on a GPU each, and the actor has "
                f"{len(found.trainers)}; lower training.ranks, or name so many GPUs in one text of "
                "compute.local.actor.devices, such as '0,1'"
            )
        if not samples:
            return
        size = gpus_per_engine(plan.rollout)
        few = next((gpus for gpus in found.engines if 0 < len(gpus) < size), None)
        if few is not None:
            raise ConfigError(
                f"an engine is to compute on {size} GPUs (rollout.engine_options, "
                f"{' and '.join(PARALLEL)}), and one has {len(few)}; lower these options, or name "
                f"{size} in each text of compute.local.rollout.devices"
            )
        if plan.rollout.sleep_while_training:
            _check_sleep(found)
        if found.idle:
            self._warn_of_idle_gpus(found)

    def _warn_of_idle_gpus(self, found: Placement) -> None:
        plan = self.plan
        workers, devices = plan.rollout.num_rollout_workers, plan.compute.local.rollout.devices
        idle = f"GPU {', '.join(gpu.address for gpu in found.idle)}"
        does = "does nothing" if len(found.idle) == 1 else "do nothing"
        if plan.compute.mode == "single_node":
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
            why = f"an engine takes {gpus_per_engine(plan.rollout)} (rollout.engine_options)"
        else:
            return
        logger.warning("%s %s: %s", idle, does, why)


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


def _check_sleep(found: Placement) -> None:
    """Raise `ConfigError` unless sleeping rollout workers free memory of the actor's GPU."""
    why = None
    if not found.gpus:
        why = "this machine has no GPU, and vLLM on a CPU cannot sleep"
    elif not found.shares:
        why = "the rollout workers have GPUs of their own"
    if why is not None:
        raise ConfigError(f"rollout.sleep_while_training = true: {why}; leave it out")
