"""The run has cost most of what it may cost."""

from __future__ import annotations

from mortal_steps.report.watchers.base import Found, Seen, Watched
from mortal_steps.runs.notices import Level


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
