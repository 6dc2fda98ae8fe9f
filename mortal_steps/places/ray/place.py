"""A Ray cluster: which GPUs of its nodes a run takes."""

from __future__ import annotations

import contextlib
import shutil
import sys
from collections.abc import AsyncIterator, Collection

from mortal_steps.compute.base import Role
from mortal_steps.compute.interpreters import lacks
from mortal_steps.compute.placement import Placement, gpus_per_engine
from mortal_steps.compute.pool import Compute
from mortal_steps.errors import ConfigError
from mortal_steps.places.base import Place, Staff
from mortal_steps.places.ray.compute import ray_pools
from mortal_steps.places.ray.gpus import gpus_on_a_node


class RayPlace(Place):
    """Processes on the nodes of a cluster. Rewards run beside the flow."""

    @contextlib.asynccontextmanager
    async def workers(self, staff: Staff) -> AsyncIterator[Compute]:
        beside = staff.here({"reward": staff.specs["reward"]})
        pools = ray_pools(staff.run, staff.specs, staff.lease)
        compute = Compute({**beside.pools, **pools})
        try:
            yield compute
        finally:
            await compute.close()

    def check_interpreters(self, roles: Collection[Role]) -> None:
        python = self.config.compute.ray.python or sys.executable
        if shutil.which(python) is None or lacks(python, "ray"):
            raise ConfigError(
                f"compute.backend = 'ray', but {python} has no Ray; install it (pip install "
                "'ray>=2.60,<3'), or set compute.ray.python to an interpreter that has it"
            )
        super().check_interpreters(roles)

    def placement(self, *, samples: bool = True) -> Placement:
        config = self.config
        ray, size = config.compute.ray, gpus_per_engine(config.rollout)
        workers = range(config.num_rollout_workers if samples else 0)
        return Placement(
            trainers=gpus_on_a_node(ray.actor, config.training.ranks, "actor"),
            engines=tuple(gpus_on_a_node(ray.rollout, size, f"rollout-{n}") for n in workers),
        )
