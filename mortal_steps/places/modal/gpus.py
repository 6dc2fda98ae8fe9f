"""The GPUs that a run rents on Modal."""

from __future__ import annotations

from typing import Any

from mortal_steps.compute.base import Role
from mortal_steps.compute.devices import Gpu, gpus_elsewhere
from mortal_steps.compute.placement import Placement, gpus_per_engine
from mortal_steps.config import ComputeConfig
from mortal_steps.config.gpus import gpu_count, memory_of, modal_gpu, most_per_container
from mortal_steps.errors import ConfigError
from mortal_steps.places.modal.release import Cluster
from mortal_steps.places.plan import PlacePlan

CLUSTERED = ("H100", "H100!", "H200", "B200", "B200+", "B300")
"""GPUs of machines that Modal connects with each other, as far as its guide says."""
MOST_TOGETHER = 256
"""GPUs that Modal gives a cluster."""


def reserved(compute: ComputeConfig, role: Role) -> dict[str, Any]:
    """Return the options of Modal that reserve what a container of a role has."""
    gpu = compute.gpu_of(role)
    return {
        "gpu": modal_gpu(gpu) if gpu else None,
        "cpu": compute.cpu_of(role),
        "memory": compute.memory_mb_of(role),
    }


def gpus_on_modal(plan: PlacePlan, *, samples: bool) -> Placement:
    """Return the GPUs of a run; without `samples`, it has no engines. Raises `ConfigError` for GPUs
    that would be paid for and do nothing, and for fewer than it takes."""
    modal, ranks = plan.compute.modal, plan.ranks
    size = gpus_per_engine(plan.rollout) if samples else 0
    trains = f"the actor trains on {'one GPU' if ranks == 1 else f'{ranks} GPUs (training.ranks)'}"
    if plan.compute.mode == "single_node":
        apart = modal.vllm_mode == "server"
        if apart and not samples:
            raise ConfigError(
                "compute.modal.vllm_mode = 'server' has the last GPUs sample, and nothing is "
                "sampled in this run; leave it out"
            )
        other = f", and the rollout worker samples on {'one' if size == 1 else size}"
        used = ranks + size if apart else max(ranks, size)
        _check_count("gpu", modal.gpu, used, trains + other * (used > ranks))
        gpus = _rented(modal.gpu, "node")
        engine = gpus[-size:] if apart else gpus[:size]
        return Placement(trainers=gpus[:ranks], engines=(engine,) if samples else ())
    trainers = _trainers(modal.actor, ranks, plan.actor_containers, trains)
    if not samples:
        return Placement(trainers=trainers, engines=())
    instead = f" and rollout.num_rollout_workers = {gpu_count(modal.rollout)}" * (size == 1)
    on = f"{size} GPUs" if size > 1 else "1"
    _check_count("rollout", modal.rollout, size, f"an engine samples on {on}", instead)
    workers = range(plan.num_rollout_workers)
    engines = tuple(_rented(modal.rollout, f"rollout-{worker}") for worker in workers)
    return Placement(trainers=trainers, engines=engines)


def cluster_of(compute: ComputeConfig, containers: int) -> Cluster | None:
    """Return the containers of an actor that is in several; None: it is in one."""
    if containers == 1:
        return None
    return Cluster(
        containers=containers,
        gpu=modal_gpu(compute.modal.actor),
        cpu=compute.cpu_of("actor"),
        memory_mb=compute.memory_mb_of("actor"),
    )


def _trainers(wanted: str, ranks: int, containers: int, trains: str) -> tuple[Gpu, ...]:
    most = most_per_container(wanted)
    if ranks <= most:
        _check_count("actor", wanted, ranks, trains)
        return _rented(wanted, "actor")[:ranks]
    if gpu_count(wanted) != most or ranks % most:
        raise ConfigError(
            f"compute.modal.actor = {wanted!r}: {trains}, and one container of Modal holds at most "
            f"{most} of this kind; several train together if they are whole. Write "
            f"'{wanted.partition(':')[0]}:{most}' and training.ranks = "
            f"{most * -(-ranks // most)}, or have {most} ranks or fewer"
        )
    kind = modal_gpu(wanted).partition(":")[0]
    if kind not in CLUSTERED or ranks > MOST_TOGETHER:
        raise ConfigError(
            f"compute.modal.actor = {wanted!r}: {trains}, in several containers, which Modal "
            f"connects for {', '.join(CLUSTERED)}, up to {MOST_TOGETHER} of them; have {most} "
            "ranks or fewer, or choose such a GPU"
        )
    return tuple(gpu for each in range(containers) for gpu in _rented(wanted, f"actor-{each}"))


def _check_count(key: str, wanted: str, used: int, why: str, instead: str = "") -> None:
    count, most = gpu_count(wanted), most_per_container(wanted)
    if used > most:
        raise ConfigError(
            f"compute.modal.{key} = {wanted!r}: {why}, and one container of Modal holds at most "
            f"{most} of this kind. Have {most} or fewer do it, or choose a GPU with more memory"
        )
    fits = wanted.partition(":")[0] + (f":{used}" if used > 1 else "")
    if count > used:
        raise ConfigError(
            f"compute.modal.{key} = {wanted!r}: {why}; the others would be paid for and do "
            f"nothing. Write {fits!r}{instead}"
        )
    if count < used:
        raise ConfigError(f"compute.modal.{key} = {wanted!r}: {why}. Write {fits!r}")


def _rented(wanted: str, container: str) -> tuple[Gpu, ...]:
    name = modal_gpu(wanted).partition(":")[0]
    return gpus_elsewhere(name, memory_of(name), gpu_count(wanted), container)
