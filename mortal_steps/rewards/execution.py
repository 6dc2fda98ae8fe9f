"""The pool in which programs of this process run; all reward environments share it."""

from __future__ import annotations

import threading
from typing import Any

from mortal_steps.sandbox.places import Needs, Place, PlaceSettings, place_of
from mortal_steps.sandbox.pool import Pool

_settings = PlaceSettings()
_place: Place | None = None
_making = threading.Lock()


def use_settings(settings: PlaceSettings) -> None:
    """Set where programs of this process run from now on."""
    global _settings
    close()
    _settings = settings


def shared_pool(**needs: Any) -> Pool[Any]:
    """Lanes for programs with these `Needs`; they end with this process.

    Raises `NoIsolationError` if programs cannot be isolated and neither the settings nor the
    argument allow that, and `ComputeError` if Modal refuses.
    """
    return _shared_place().pool(Needs(**needs))


def prepare(**needs: Any) -> None:
    """Build the images that programs with these `Needs` run in; raises `ComputeError`."""
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
