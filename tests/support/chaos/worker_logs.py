"""What the workers' logs tell: which call each was in, at every moment of a run.

2026-01-31 23:59:58,100 INFO ...container: process 77 is a mortal_steps.rollout.worker:RolloutWorker
2026-01-31 23:59:58,200 INFO ...container: generate/3/1 begins
2026-01-31 23:59:58,201 INFO ...worker: sampling steps/000003/generations-1.parquet with v3
2026-01-31 23:59:58,300 INFO ...container: generate/3/1 ends
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Literal

from mortal_steps.rewards.host import HANDLER
from tests.support.chaos.schedule import STARTING, WORKERS

Kind = Literal[
    "started",
    "host started",
    "begins",
    "ends",
    "fails",
    "sampling",
    "scoring",
    "taking",
    "replaying",
]

LINE = re.compile(r".*(\d{4}-\d\d-\d\d \d\d:\d\d:\d\d),(\d{3}) INFO mortal_steps\.[\w.]+: (.*)")
"""What a process was printing that was killed may stand before it."""
FOLLOWED = (*WORKERS, "rollout-2")
"""One variant has a third rollout worker, which is not killed."""
HOST = HANDLER.rpartition(":")[2]
STARTED = re.compile(r"process (\d+) is a [\w.]+:(\w+)")
CALL = re.compile(r"(\w+)(?:/\d+/\d+)? (begins|ends|fails)")
WORK = re.compile(r"(sampling|scoring|taking|replaying) (?:step )?(\S+)")


@dataclass(frozen=True, kw_only=True, slots=True)
class Event:
    """A line of a worker's log."""

    at: float
    """Seconds since the epoch, to the millisecond."""
    worker: str
    """Such as `rollout-0`."""
    kind: Kind
    name: str
    """The stage that begins or ends, the process id, the file sampled or scored, the step taken."""


class LogFollower:
    """Reads what the logs of a run's workers grow by."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._logs: dict[str, IO[bytes]] = {}
        self._begun: dict[str, bytes] = dict.fromkeys(FOLLOWED, b"")
        """Of each log, a last line that is not whole yet."""

    def new_events(self) -> list[Event]:
        """Return what was written since the last call, oldest first."""
        found: list[Event] = []
        for worker in FOLLOWED:
            found.extend(self._new_events_of(worker))
        return sorted(found, key=lambda event: event.at)

    def _new_events_of(self, worker: str) -> Iterator[Event]:
        if worker not in self._logs:
            try:
                self._logs[worker] = (self._folder / f"{worker}.log").open("rb")
            except FileNotFoundError:
                return
        *lines, self._begun[worker] = (self._begun[worker] + self._logs[worker].read()).split(b"\n")
        for line in lines:
            event = _parse(worker, line.decode(errors="replace"))
            if event is not None:
                yield event

    def close(self) -> None:
        """Close the logs."""
        for log in self._logs.values():
            log.close()


class Picture:
    """Who does what at the moment."""

    def __init__(self) -> None:
        self._calls: dict[str, str] = {}
        self._fresh: set[str] = set()
        self.newest: Event | None = None
        """The last beginning or end of a call."""

    def add(self, events: Iterable[Event]) -> None:
        """Take in what happened."""
        for event in events:
            if event.kind == "started":
                self._calls[event.worker] = STARTING
                self._fresh.add(event.worker)
            elif event.kind == "begins":
                self._calls[event.worker] = STARTING if event.worker in self._fresh else event.name
                self.newest = event
            elif event.kind in ("ends", "fails"):
                self.forget(event.worker)
                self.newest = event

    def forget(self, worker: str) -> None:
        """The worker is in no call, or gone."""
        self._calls.pop(worker, None)
        self._fresh.discard(worker)

    def stage_of(self, worker: str) -> str | None:
        """The stage of the call that a worker is in; `STARTING` until its first one is answered."""
        return self._calls.get(worker)

    def stages(self) -> list[str]:
        """Stages that some worker is in."""
        return list(self._calls.values())


def read_events(folder: Path) -> list[Event]:
    """Everything the logs of a run hold, oldest first."""
    logs = LogFollower(folder)
    try:
        return logs.new_events()
    finally:
        logs.close()


def durations(events: Sequence[Event]) -> dict[str, float]:
    """Mean seconds of a call, by stage."""
    begun: dict[str, float] = {}
    took: dict[str, list[float]] = {}
    for event in events:
        if event.kind == "begins":
            begun[event.worker] = event.at
        elif event.kind == "ends" and event.worker in begun:
            took.setdefault(event.name, []).append(event.at - begun.pop(event.worker))
    return {stage: sum(seconds) / len(seconds) for stage, seconds in took.items()}


def _parse(worker: str, line: str) -> Event | None:
    found = LINE.fullmatch(line)
    if found is None:
        return None
    at = time.mktime(time.strptime(found[1], "%Y-%m-%d %H:%M:%S")) + int(found[2]) / 1000
    if started := STARTED.fullmatch(found[3]):
        if started[2] != HOST and started[2].endswith("Handler"):
            return None  # of episodes: their worker goes on
        kind: Kind = "host started" if started[2] == HOST else "started"
        return Event(at=at, worker=worker, kind=kind, name=started[1])
    if call := CALL.fullmatch(found[3]):
        return Event(at=at, worker=worker, kind=call[2], name=call[1])  # type: ignore[arg-type]
    if work := WORK.match(found[3]):
        return Event(at=at, worker=worker, kind=work[1], name=work[2])  # type: ignore[arg-type]
    return None
