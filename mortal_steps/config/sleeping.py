"""Whether rollout workers can sleep while the actor trains (`rollout.sleep_while_training`)."""

from __future__ import annotations

from mortal_steps.config.batch_sources import GENERATE
from mortal_steps.config.compute import ComputeConfig
from mortal_steps.config.rollout import RolloutConfig


def check_sleep(rollout: RolloutConfig, compute: ComputeConfig) -> None:
    """Raise `ValueError` where they have something else to do then, or no GPU in common."""
    asked = "rollout.sleep_while_training = true"
    if not rollout.sleep_while_training:
        return
    if rollout.staleness:
        raise ValueError(
            f"{asked} lets rollout workers sleep while the actor trains, and with "
            f"rollout.staleness = {rollout.staleness} they sample meanwhile; set one of the two "
            "back to its default"
        )
    if compute.backend == "modal":
        raise ValueError(
            f"{asked} is for workers that share a GPU of this machine, and compute.backend = "
            "'modal' runs them in containers; leave it out"
        )
    if rollout.source != GENERATE:
        raise ValueError(
            f"{asked} is for rollouts that the run's own workers sample, and rollout.source is "
            f"{rollout.source!r}; leave it out"
        )
