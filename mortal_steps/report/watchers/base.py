"""What watches a run, step by step, for one kind of fact.

A watcher is a pure function of what it has seen, so a process that continues a run shows it the
run's logs first, and it stands where the one before stood.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from mortal_steps.runs.notices import Level


@dataclass(frozen=True, kw_only=True, slots=True)
class Seen:
    """What is new of a run; None where nothing is."""

    step: int
    """Train steps done."""
    metrics: Mapping[str, Any] | None = None
    """The step's line of metrics.jsonl."""
    evaluation: Mapping[str, Any] | None = None
    """A line of evaluations.jsonl."""
    seconds: float | None = None
    """Wall time of the step, without evaluation and checkpoint."""
    spent_share: float | None = None
    """Part of what the run may cost that it has cost, where there is such a limit."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Found:
    """A fact that has just begun to hold."""

    value: float
    text: str
    """What happened, in a sentence without a full stop."""
    advice: str
    """What to do about it; `{run}` stands for the run as commands take it."""
    once: bool = False
    """Whether a run can tell it but once, in whatever step."""


class Watcher(Protocol):
    """Watches for one kind of fact; made anew, with the `RunConfig`, for each process."""

    @property
    def event(self) -> str:
        """Such as `mortal.reward.collapsed`."""
        ...

    @property
    def level(self) -> Level:
        """See `Notice.level`."""
        ...

    def look(self, seen: Seen) -> Found | None:
        """What has begun to hold with what is new."""
        ...


class Episodes:
    """Tells when something begins that goes on for a while, or comes and goes."""

    def __init__(self, quiet_steps: int) -> None:
        self._quiet_steps = quiet_steps
        self._last: int | None = None
        """The last step in which it held."""
        self._paused = False

    def begins(self, step: int, *, holds: bool) -> bool:
        """Whether it holds, and did not in more than `quiet_steps` steps before."""
        if not holds:
            self._paused = True
            return False
        last, self._last = self._last, step
        paused, self._paused = self._paused, False
        return last is None or (paused and step - last > self._quiet_steps)
