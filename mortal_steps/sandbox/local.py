"""Runs programs on this machine in bubblewrap boxes, by default one per core at a time."""

from __future__ import annotations

import logging
import platform
import threading
from functools import partial

from mortal_steps.sandbox.box import Way
from mortal_steps.sandbox.lane import Lane
from mortal_steps.sandbox.levels import way_to_run
from mortal_steps.sandbox.places import Needs, PlaceSettings
from mortal_steps.sandbox.pool import Pool
from mortal_steps.system.resources import num_cores

logger = logging.getLogger(__name__)


def local_pool(way: Way, num_lanes: int | None = None) -> Pool[Lane]:
    """Lanes on this machine, by default one per core."""
    return Pool(partial(Lane, way), num_lanes or num_cores())


class LocalPlace:
    """This machine as a `Place`. Its lanes end with this process. It ignores images."""

    def __init__(self, settings: PlaceSettings) -> None:
        self._settings = settings
        self._pools: dict[Way, Pool[Lane]] = {}
        self._ways: dict[bool, Way] = {}
        """How lanes are started, by whether running without isolation is allowed. It is decided
        once and does not change."""
        self._making = threading.Lock()
        self._told: set[str] = set()

    def prepare(self, needs: Needs) -> None:
        """See `Place.prepare`. There is nothing to prepare here."""

    def pool(self, needs: Needs) -> Pool[Lane]:
        """See `Place.pool`; raises `NoIsolationError`."""
        allowed = needs.allow_unisolated or self._settings.allow_unisolated
        with self._making:
            if allowed not in self._ways:
                self._ways[allowed] = way_to_run(allow_unisolated=allowed)
            way = self._ways[allowed]
            self._say_what_is_left_out(needs)
            if way not in self._pools:
                self._pools[way] = local_pool(way, self._settings.lanes)
            return self._pools[way]

    def close(self) -> None:
        """See `Place.close`. Lanes end with the threads that started them."""

    def _say_what_is_left_out(self, needs: Needs) -> None:
        if needs.image is None or needs.who in self._told:
            return
        self._told.add(needs.who)
        logger.warning(
            "%s: sandbox_config.image applies to Modal only; on this machine, programs run in "
            "Python %s with the packages of this process",
            needs.who,
            platform.python_version(),
        )
