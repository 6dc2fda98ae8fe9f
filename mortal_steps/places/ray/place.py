"""A Ray cluster: which GPUs of its nodes a run takes."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Collection

from mortal_steps.compute.base import Role
from mortal_steps.compute.interpreters import lacks
from mortal_steps.compute.placement import Placement, gpus_per_engine
from mortal_steps.compute.pool import Compute
from mortal_steps.errors import ConfigError
from mortal_steps.places.base import Place, WantedWorkers
from mortal_steps.places.ray.compute import ray_pools
from mortal_steps.places.ray.gpus import gpus_on_a_node


class RayPlace(Place):
    """Processes on the nodes of a cluster. Rewards run beside the flow."""

    def compute(self, wanted: WantedWorkers) -> Compute:
        beside = wanted.here({"reward": wanted.specs["reward"]})
        return Compute({**beside.pools, **ray_pools(wanted.run, wanted.specs, wanted.lease)})

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
