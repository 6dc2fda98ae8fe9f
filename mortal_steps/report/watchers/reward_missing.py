"""No completion gets a reward, so that nothing is learned."""

from __future__ import annotations

from mortal_steps.report.watchers.base import Episodes, Found, Seen, Watched
from mortal_steps.runs.notices import Level

MISSING_STEPS = 3
"""Steps in a row without any reward after which it is reported."""


class RewardMissing:
    """Looks for `MISSING_STEPS` steps in a row in which no completion was scored."""

    event = "mortal.reward.missing"
    level: Level = "warning"

    def __init__(self, watched: Watched) -> None:
        self._episodes = Episodes(watched.alerts.quiet_steps)
        self._steps = 0

    def look(self, seen: Seen) -> Found | None:
        """See `Watcher`."""
        if seen.metrics is None or "num_rows" in seen.metrics:  # rows have no rewards
            return None
        self._steps = self._steps + 1 if seen.metrics["reward"] is None else 0
        if not self._episodes.begins(seen.step, holds=self._steps >= MISSING_STEPS):
            return None
        return Found(
            value=0.0,
            text=f"nothing to learn from: no completion of steps {seen.step - self._steps + 1} to "
            f"{seen.step} has a reward. Every reward function returned None for it, or failed and "
            "was masked",
            advice="read the completions (`mortal show {run} --samples 3`) and call the functions "
            "with them (`mortal test-reward`)",
        )
