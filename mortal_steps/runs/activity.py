"""`activity.json`: what a run is doing now, for people who look on.

The run's driver replaces the file about once a second while stages begin and end, and removes it
when it ends. No decision depends on it: it is no part of the run's history, it is not synced to
disk, and if it cannot be read nothing is shown.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import time
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from mortal_steps.store.files import hidden_beside

logger = logging.getLogger(__name__)

ACTIVITY_FILE = "activity.json"
WRITE_EVERY_S = 1.0


@dataclass(frozen=True, kw_only=True, slots=True)
class Work:
    """Calls of one stage for one step, to workers of one kind."""

    stage: str
    """As in the timing table."""
    method: str
    """The method that a worker is asked for. In an evaluation it is `generate`, then `reward`."""
    step: int
    """Train steps done before it."""
    done: int
    """Calls that have ended."""
    of: int
    """Calls in all."""
    since: float
    """When the oldest call under way began, or when the last one ended; seconds since the epoch."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Activity:
    """What a run is doing at one moment."""

    written_at: float
    """Seconds since the epoch."""
    pace_s: float | None
    """Seconds per train step over the last steps of this process; None before its first step."""
    paused: str | None
    """Why no step is begun; None while steps are begun."""
    paused_since: float | None
    work: Sequence[Work]
    """What is under way, the oldest first."""


def write_activity(root: Path, activity: Activity) -> None:
    """Replace the file atomically; raises `OSError`."""
    path = root / ACTIVITY_FILE
    beside = hidden_beside(path, "partial")
    try:
        beside.write_text(json.dumps(asdict(activity)) + "\n", encoding="utf-8")
        beside.rename(path)
    finally:
        beside.unlink(missing_ok=True)


def read_activity(root: Path) -> Activity | None:
    """Read the file; None if there is no file, or none that can be read."""
    try:
        values = json.loads((root / ACTIVITY_FILE).read_bytes())
        return _activity(values)
    except (OSError, ValueError, TypeError, KeyError):
        return None


def _activity(values: Mapping[str, Any]) -> Activity:
    return Activity(**{**values, "work": [Work(**each) for each in values["work"]]})


@dataclass(kw_only=True, slots=True)
class _Calls:
    """A `Work` that is being counted."""

    of: int
    done: int
    since: float
    under_way: list[float]

    def began(self) -> float:
        return min(self.under_way, default=self.since)


class Doing:
    """Tracks what a run's driver is doing."""

    def __init__(self) -> None:
        self._calls: dict[tuple[str, str, int], _Calls] = {}
        self._pace_s: float | None = None
        self._paused: str | None = None
        self._paused_since: float | None = None
        self._changed = True

    @contextlib.contextmanager
    def calling(self, stage: str, method: str, step: int, *, of: int = 1) -> Iterator[None]:
        """Count one of the `of` calls of a stage as under way for the time of the block."""
        key, began = (stage, method, step), time.time()
        calls = self._calls.setdefault(key, _Calls(of=of, done=0, since=began, under_way=[]))
        calls.under_way.append(began)
        self._changed = True
        ended = 0
        try:
            yield
            ended = 1
        finally:
            calls.under_way.remove(began)
            calls.done, calls.since = min(calls.done + ended, of), time.time()
            if calls.done == of and not calls.under_way:
                self._calls.pop(key, None)
            self._changed = True

    @contextlib.contextmanager
    def pausing(self, why: str) -> Iterator[None]:
        """Note for the time of the block that no step is begun, and why."""
        self._paused, self._paused_since, self._changed = why, time.time(), True
        try:
            yield
        finally:
            self._paused, self._paused_since, self._changed = None, None, True

    def trained(self, done: int, pace_s: float | None) -> None:
        """Note the number of train steps done. Calls left over from earlier steps are no longer
        shown."""
        self._pace_s, self._changed = pace_s, True
        for key in [key for key in self._calls if key[2] < done and not self._calls[key].under_way]:
            del self._calls[key]

    def now(self) -> Activity:
        """Return what is under way now."""
        found = [
            Work(
                stage=stage,
                method=method,
                step=step,
                done=calls.done,
                of=calls.of,
                since=calls.began(),
            )
            for (stage, method, step), calls in self._calls.items()
        ]
        return Activity(
            written_at=time.time(),
            pace_s=self._pace_s,
            paused=self._paused,
            paused_since=self._paused_since,
            work=sorted(found, key=lambda work: work.since),
        )

    def waits_since(self) -> float | None:
        """Return when the oldest work under way began; None if nothing is under way."""
        waits = [calls.began() for calls in self._calls.values()]
        if self._paused_since is not None:
            waits.append(self._paused_since)
        return min(waits, default=None)

    @property
    def pace_s(self) -> float | None:
        """Seconds per train step, as last reported."""
        return self._pace_s

    async def keep_written(self, root: Path) -> None:
        """Write the file into a run's directory whenever something has changed; to be run in a task
        of its own.

        If that fails, people cannot see what the run does, and the run continues.
        """
        try:
            while True:
                if self._changed:
                    self._changed = False
                    write_activity(root, self.now())
                await asyncio.sleep(WRITE_EVERY_S)
        except OSError as error:
            logger.warning("%s is not written any more: %s", root / ACTIVITY_FILE, error)


@contextlib.asynccontextmanager
async def shown_in(root: Path, doing: Doing) -> AsyncIterator[None]:
    """Keep a run's file written for the time of the block, then remove it."""
    writing = asyncio.create_task(doing.keep_written(root))
    try:
        yield
    finally:
        writing.cancel()
        await asyncio.gather(writing, return_exceptions=True)
        with contextlib.suppress(OSError):  # it would hide how the run has ended
            (root / ACTIVITY_FILE).unlink()
