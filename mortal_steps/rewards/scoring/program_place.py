"""Decides where the programs of a run are executed; its reward hosts are told."""

from __future__ import annotations

from collections.abc import Mapping

from mortal_steps.config import RewardsConfig
from mortal_steps.errors import ConfigError
from mortal_steps.hosts.environment import visible_environment
from mortal_steps.sandbox.places import PlaceSettings
from mortal_steps.system.cores import num_cores

SHARE = 0.8
"""Part of a call's time limit that a sandbox may take to start, so that it can report itself that
it did not start."""


def place_settings(
    rewards: RewardsConfig, app: str, environment: Mapping[str, str], *, sharing: int = 1
) -> PlaceSettings:
    """Where the programs of a run are to run, as `[rewards.sandbox]` says; by default in Modal
    Sandboxes where this is a container of Modal's, and else on this machine.

    Such a container is one already, and shuts nothing in that runs in it. Of the lanes, each of
    `sharing` processes has a part. Raises `ConfigError` if there are fewer of them.
    """
    asked = rewards.sandbox
    kind = asked.place or ("modal" if environment.get("MODAL_IS_REMOTE") == "1" else "local")
    seen = visible_environment(environment, ())
    hidden = {name: value for name, value in environment.items() if name.startswith("MODAL_")}
    return PlaceSettings(
        kind=kind,
        lanes=_lanes_of_each(asked.lanes, sharing, is_local=kind == "local"),
        allow_unisolated=asked.allow_unisolated,
        patience_s=SHARE * rewards.timeout_s,
        app=app,
        variables={} if kind == "local" else {n: v for n, v in hidden.items() if n not in seen},
    )


def _lanes_of_each(lanes: int | None, sharing: int, *, is_local: bool) -> int | None:
    if lanes is None:
        return max(1, num_cores() // sharing) if is_local else None
    if lanes < sharing:
        raise ConfigError(
            f"rewards.sandbox.lanes = {lanes}: {sharing} processes with reward functions share "
            "them, and each needs one; raise it, or lower rewards.num_reward_workers or the "
            "`processes` of terms"
        )
    return lanes // sharing
