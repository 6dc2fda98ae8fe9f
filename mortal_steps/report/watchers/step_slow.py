"""A step takes far longer than those before."""

from __future__ import annotations

import statistics
from collections import deque

from mortal_steps.config import RunConfig
from mortal_steps.report.watchers.base import Episodes, Found, Seen
from mortal_steps.runs.notices import Level

RECENT_STEPS = 50
FEWEST_STEPS = 10
"""Steps that have to be known before one can be called slow."""


class StepSlow:
    """Compares a step with the median of those before; see `[alerts] slow_step_factor`."""

    event = "mortal.step.slow"
    level: Level = "warning"

    def __init__(self, config: RunConfig) -> None:
        self._factor = config.alerts.slow_step_factor
        self._at_least_s = config.alerts.slow_step_s
        self._episodes = Episodes(config.alerts.quiet_steps)
        self._recent: deque[float] = deque(maxlen=RECENT_STEPS)

    def look(self, seen: Seen) -> Found | None:
        """See `Watcher`."""
        if seen.seconds is None:
            return None
        usual = statistics.median(self._recent) if len(self._recent) >= FEWEST_STEPS else None
        self._recent.append(seen.seconds)
        slow = usual is not None and seen.seconds > max(self._factor * usual, self._at_least_s)
        if not self._episodes.begins(seen.step, holds=slow) or usual is None:
            return None
        return Found(
            value=seen.seconds,
            text=f"step {seen.step} took {seen.seconds:.1f} s; the steps before took {usual:.1f} s",
            advice="the report's stage table tells which stage it is (`mortal show {run}`), and "
            "the workers' logs why: a machine that swaps, a service that answers slowly, a worker "
            "that was replaced",
        )
