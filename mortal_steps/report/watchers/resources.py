"""What a run takes: a step takes far longer than those before, or most of the money is spent."""

from __future__ import annotations

import statistics
from collections import deque
from collections.abc import Mapping, Sequence

from mortal_steps.report.watchers.base import Episodes, Found, Seen, Watched
from mortal_steps.runs.notices import Level

RECENT_STEPS = 50
FEWEST_STEPS = 10
"""Steps that have to be known before one can be called slow."""


class StepSlow:
    """Compares a step with the median of those before; see `[alerts] slow_step_factor`."""

    event = "mortal.step.slow"
    level: Level = "warning"

    def __init__(self, watched: Watched) -> None:
        self._factor = watched.alerts.slow_step_factor
        self._at_least_s = watched.alerts.slow_step_s
        self._episodes = Episodes(watched.alerts.quiet_steps)
        self._recent: deque[float] = deque(maxlen=RECENT_STEPS)
        self._stages: deque[Mapping[str, float]] = deque(maxlen=RECENT_STEPS)

    def look(self, seen: Seen) -> Found | None:
        """See `Watcher`."""
        if seen.seconds is None:
            return None
        usual = statistics.median(self._recent) if len(self._recent) >= FEWEST_STEPS else None
        before, stages = list(self._stages), seen.stages or {}
        self._recent.append(seen.seconds)
        self._stages.append(stages)
        slow = usual is not None and seen.seconds > max(self._factor * usual, self._at_least_s)
        if not self._episodes.begins(seen.step, holds=slow) or usual is None:
            return None
        return Found(
            value=seen.seconds,
            text=f"step {seen.step} took {seen.seconds:.1f} s; the steps before took {usual:.1f} s"
            + _blame(stages, before, seen.seconds - usual),
            advice="the report's table of stages has more (`mortal show {run}`), and "
            "the workers' logs tell why: a machine that swaps, a service that answers slowly, a "
            "worker that was replaced",
        )


def _blame(
    stages: Mapping[str, float], before: Sequence[Mapping[str, float]], longer_s: float
) -> str:
    """The stage that took at least half of `longer_s` more than it usually does; nothing if none
    did."""
    usual = {
        stage: statistics.median([each[stage] for each in before if stage in each] or [0.0])
        for stage in stages
    }
    slowest = max(stages, key=lambda stage: stages[stage] - usual[stage], default=None)
    if slowest is None or stages[slowest] - usual[slowest] < longer_s / 2:
        return ""
    return f". A call of {slowest} took {stages[slowest]:.1f} s instead of {usual[slowest]:.1f} s"


class Budget:
    """Tells once, when `[alerts] cost_share` of the limit is spent."""

    level: Level = "warning"

    def __init__(self, watched: Watched) -> None:
        self._share = watched.alerts.cost_share
        self._limit = watched.max_cost
        self._told = False

    @property
    def event(self) -> str:
        """See `Watcher`: by default `mortal.budget.80`."""
        return f"mortal.budget.{100 * self._share:.0f}"

    def look(self, seen: Seen) -> Found | None:
        """See `Watcher`."""
        if self._limit is None or seen.spent_share is None or self._told:
            return None
        if seen.spent_share < self._share:
            return None
        self._told = True
        return Found(
            value=seen.spent_share,
            text=f"{100 * seen.spent_share:.0f} % of compute.modal.max_cost = {self._limit:g} "
            f"dollars is spent, {seen.step} steps are done",
            advice="at 100 % the run saves its state and stops; `mortal train` with its "
            "configuration, its run id and a higher limit goes on from there",
            once=True,
        )
