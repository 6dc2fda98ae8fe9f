"""Reward functions fail on many completions, which are left out of training."""

from __future__ import annotations

from mortal_steps.report.watchers.base import Episodes, Found, Seen, Watched
from mortal_steps.runs.notices import Level


class RewardMasked:
    """Looks at the reward function that failed on most of a step; see `[alerts] masked_share`."""

    event = "mortal.reward.masked"
    level: Level = "warning"

    def __init__(self, watched: Watched) -> None:
        self._share = watched.alerts.masked_share
        self._functions = watched.functions
        self._num_completions = watched.num_completions
        self._episodes = Episodes(watched.alerts.quiet_steps)

    def look(self, seen: Seen) -> Found | None:
        """See `Watcher`."""
        if seen.metrics is None or not self._functions:
            return None
        masked = {name: seen.metrics.get(f"rewards/{name}/masked", 0) for name in self._functions}
        worst = max(masked, key=lambda name: masked[name])
        share = masked[worst] / self._num_completions
        if not self._episodes.begins(seen.step, holds=share > self._share):
            return None
        return Found(
            value=share,
            text=f"{100 * share:.0f} % of the completions of step {seen.step} are left out, as "
            f"{worst} failed on them",
            advice="`mortal show {run}` names the problems and the errors; if a service that "
            "the function needs is down, `mortal stop {run}` until it is back",
        )
