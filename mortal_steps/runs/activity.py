"""`activity.json`: what a run is doing now, for people who look on (`doing` writes it).

The run's driver replaces the file about once a second while stages begin and end, and removes it
when it ends. No decision depends on it: it is no part of the run's history, it is not synced to
disk, and if it cannot be read nothing is shown.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from mortal_steps.store.files import hidden_beside

ACTIVITY_FILE = "activity.json"


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
    """The content of the file; None if there is no file, or none that can be read."""
    try:
        values = json.loads((root / ACTIVITY_FILE).read_bytes())
        return _activity(values)
    except (OSError, ValueError, TypeError, KeyError):
        return None


def _activity(values: Mapping[str, Any]) -> Activity:
    return Activity(**{**values, "work": [Work(**each) for each in values["work"]]})
