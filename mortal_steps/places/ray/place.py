"""A Ray cluster: which GPUs of its nodes a run takes."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Collection

from mortal_steps.compute.base import Role
from mortal_steps.compute.devices import Gpu, gpus_elsewhere
from mortal_steps.compute.interpreters import lacks
from mortal_steps.compute.placement import Placement, gpus_per_engine
from mortal_steps.compute.pool import Compute
from mortal_steps.config.gpus import ALIASES, GIB, MEMORY
from mortal_steps.errors import ConfigError
from mortal_steps.places.base import Place, WantedWorkers
from mortal_steps.places.ray.compute import ray_pools

KINDS = {
    **MEMORY,
    "A100": 0.0,  # Ray gives those of 80 GB the same name
    "A100-40G": MEMORY["A100-40GB"],
    "A100-80G": MEMORY["A100-80GB"],
}
"""Memory in GiB of a GPU, by the name that Ray gives its kind."""


class RayPlace(Place):
    """Processes on the nodes of a cluster. Rewards run beside the flow."""

    def compute(self, wanted: WantedWorkers) -> Compute:
        beside = wanted.here({"reward": wanted.specs["reward"]})
        return Compute({**beside.pools, **ray_pools(wanted.run, wanted.specs, wanted.lease)})

    def check_interpreters(self, roles: Collection[Role]) -> None:
        python = self.plan.compute.ray.python or sys.executable
        if shutil.which(python) is None or lacks(python, "ray"):
            raise ConfigError(
                f"compute.backend = 'ray', but {python} has no Ray; install it (pip install "
                "'ray>=2.60,<3'), or set compute.ray.python to an interpreter that has it"
            )
        super().check_interpreters(roles)

    def placement(self, *, samples: bool = True) -> Placement:
        plan = self.plan
        ray, size = plan.compute.ray, gpus_per_engine(plan.rollout)
        workers = range(plan.num_rollout_workers if samples else 0)
        return Placement(
            trainers=_gpus_of(ray.actor, plan.ranks, "actor"),
            engines=tuple(_gpus_of(ray.rollout, size, f"rollout-{n}") for n in workers),
        )


def _gpus_of(kind: str | None, count: int, worker: str) -> tuple[Gpu, ...]:
    """Return the GPUs of a worker, none for a `kind` of None. Their memory is 0 if the kind is not
    known."""
    if kind is None:
        return ()
    memory = round(GIB * KINDS.get(ALIASES.get(kind, kind), 0.0))
    return gpus_elsewhere(kind, memory, count, worker)
