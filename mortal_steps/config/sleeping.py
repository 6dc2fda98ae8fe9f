"""Whether actor and rollout workers can share a GPU in turn (`rollout.sleep_while_training`), or
memory (`rollout.weight_sync = "direct"`)."""

from __future__ import annotations

from mortal_steps.config.batch_sources import GENERATE
from mortal_steps.config.compute import ComputeConfig
from mortal_steps.config.rollout import RolloutConfig
from mortal_steps.config.weight_sync import DIRECT, WEIGHT_SYNC


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


def check_direct(rollout: RolloutConfig, compute: ComputeConfig) -> None:
    """Raise `ValueError` where the actor and the rollout workers share no memory."""
    if rollout.weight_sync != DIRECT:
        return
    others = ", ".join(repr(name) for name in WEIGHT_SYNC if name != DIRECT)
    if compute.backend == "modal":
        raise ValueError(
            f"rollout.weight_sync = {DIRECT!r} is for workers on one machine, and "
            f"compute.backend = 'modal' runs the workers in containers; use one of {others}"
        )
    if rollout.source != GENERATE:
        raise ValueError(
            f"rollout.weight_sync = {DIRECT!r} is for rollouts that the run's own workers sample, "
            f"and rollout.source is {rollout.source!r}; use one of {others}"
        )
