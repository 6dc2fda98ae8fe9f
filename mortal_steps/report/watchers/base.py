"""What a watcher is: it looks for one kind of fact in a run, step by step.

A watcher is a pure function of what it has seen. So a process that continues a run first shows it
the run's logs, after which it is in the same state as the watcher before it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from mortal_steps.config import AlertsConfig
from mortal_steps.runs.notices import Level


@dataclass(frozen=True, kw_only=True, slots=True)
class Watched:
    """What watchers need to know of a run."""

    alerts: AlertsConfig
    functions: Sequence[str]
    """Names of its rewards."""
    num_completions: int
    """Completions of a step."""
    max_cost: float | None
    """Dollars that it may cost."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Seen:
    """What is new in a run; fields without news are None."""

    step: int
    """Train steps done."""
    metrics: Mapping[str, Any] | None = None
    """The step's line of metrics.jsonl."""
    evaluation: Mapping[str, Any] | None = None
    """A line of evaluations.jsonl."""
    seconds: float | None = None
    """Wall time of the step, without evaluation and checkpoint."""
    stages: Mapping[str, float] | None = None
    """Seconds that the longest call of each of its stages took."""
    spent_share: float | None = None
    """The part of the cost limit that the run has spent, if there is a limit."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Found:
    """A fact that has just begun to hold."""

    value: float
    text: str
    """What happened, in a sentence without a full stop."""
    advice: str
    """What to do about it; `{run}` is replaced by the run as commands accept it."""
    once: bool = False
    """Whether a run reports this only once, whatever the step."""


class Watcher(Protocol):
    """Looks for one kind of fact. Each process makes a new one with a `Watched`."""

    @property
    def event(self) -> str:
        """Such as `mortal.reward.collapsed`."""
        ...

    @property
    def level(self) -> Level:
        """See `Notice.level`."""
        ...

    def look(self, seen: Seen) -> Found | None:
        """The facts that have begun to hold with what is new."""
        ...


class Episodes:
    """Reports the beginning of something that lasts for a while, or comes and goes."""

    def __init__(self, quiet_steps: int) -> None:
        self._quiet_steps = quiet_steps
        self._last: int | None = None
        """The last step in which it held."""
        self._paused = False

    def begins(self, step: int, *, holds: bool) -> bool:
        """Whether it holds now, and did not hold in the last `quiet_steps` steps."""
        if not holds:
            self._paused = True
            return False
        last, self._last = self._last, step
        paused, self._paused = self._paused, False
        return last is None or (paused and step - last > self._quiet_steps)
