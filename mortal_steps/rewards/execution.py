"""Where the programs of this process run; all reward environments share it."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from typing import Any

from mortal_steps.config import RunConfig
from mortal_steps.rewards.visible import visible_environment
from mortal_steps.sandbox.places import Needs, Place, PlaceSettings, place_of
from mortal_steps.sandbox.pool import Pool

SHARE = 0.8
"""Of the time of a call, what a sandbox may take to come up: it says itself that it did not."""

LANES_FOLDER = "lanes"
"""Of a run directory, with the locks by which processes share lanes."""

_settings = PlaceSettings()
_place: Place | None = None
_making = threading.Lock()


def place_settings(config: RunConfig, environment: Mapping[str, str]) -> PlaceSettings:
    """Where the programs of a run are to run, as `[rewards.sandbox]` says; by default in Modal
    Sandboxes where this is a container of Modal's, and else on this machine.

    Such a container is one already, and shuts nothing in that runs in it.
    """
    asked = config.rewards.sandbox
    kind = asked.place or ("modal" if environment.get("MODAL_IS_REMOTE") == "1" else "local")
    seen = visible_environment(environment, ())
    hidden = {name: value for name, value in environment.items() if name.startswith("MODAL_")}
    return PlaceSettings(
        kind=kind,
        lanes=asked.lanes,
        allow_unisolated=asked.allow_unisolated,
        patience_s=SHARE * config.rewards.timeout_s,
        app=config.compute.modal.app,
        variables={} if kind == "local" else {n: v for n, v in hidden.items() if n not in seen},
    )


def use_settings(settings: PlaceSettings) -> None:
    """Where programs of this process run from now on."""
    global _settings
    close()
    _settings = settings


def shared_pool(**needs: Any) -> Pool[Any]:
    """Lanes for programs with these `Needs`, which end with this process.

    Raises `NoIsolationError` where programs cannot be shut in, unless the settings or the argument
    allow to go without, and `ComputeError` where Modal refuses.
    """
    return _shared_place().pool(Needs(**needs))


def prepare(**needs: Any) -> None:
    """Have built what programs with these `Needs` run in; raises `ComputeError`."""
    _shared_place().prepare(Needs(**needs))


def close() -> None:
    """End what was started for programs of this process."""
    global _place
    with _making:
        place, _place = _place, None
    if place is not None:
        place.close()


def _shared_place() -> Place:
    global _place
    with _making:
        if _place is None:
            _place = place_of(_settings)
        return _place
