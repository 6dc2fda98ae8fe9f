"""Decides where the programs of a run are executed; its reward hosts are told."""

from __future__ import annotations

from collections.abc import Mapping

from mortal_steps.config import RewardsConfig
from mortal_steps.hosts.environment import visible_environment
from mortal_steps.sandbox.places import PlaceSettings

SHARE = 0.8
"""Part of a call's time limit that a sandbox may take to start, so that it can report itself that
it did not start."""

LANES_FOLDER = "lanes"
"""Folder of a run directory with the locks by which processes share lanes."""


def place_settings(
    rewards: RewardsConfig, app: str, environment: Mapping[str, str]
) -> PlaceSettings:
    """Where the programs of a run are to run, as `[rewards.sandbox]` says; by default in Modal
    Sandboxes where this is a container of Modal's, and else on this machine.

    Such a container is one already, and shuts nothing in that runs in it.
    """
    asked = rewards.sandbox
    kind = asked.place or ("modal" if environment.get("MODAL_IS_REMOTE") == "1" else "local")
    seen = visible_environment(environment, ())
    hidden = {name: value for name, value in environment.items() if name.startswith("MODAL_")}
    return PlaceSettings(
        kind=kind,
        lanes=asked.lanes,
        allow_unisolated=asked.allow_unisolated,
        patience_s=SHARE * rewards.timeout_s,
        app=app,
        variables={} if kind == "local" else {n: v for n, v in hidden.items() if n not in seen},
    )
