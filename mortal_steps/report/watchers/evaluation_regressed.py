"""The policy does worse on the held-out problems than it did."""

from __future__ import annotations

from mortal_steps.report.watchers.base import Episodes, Found, Seen, Watched
from mortal_steps.runs.notices import Level


class EvaluationRegressed:
    """Compares an evaluation's reward with the best one; see `[alerts] evaluation_drop`."""

    event = "mortal.evaluation.regressed"
    level: Level = "warning"

    def __init__(self, watched: Watched) -> None:
        self._drop = watched.alerts.evaluation_drop
        self._episodes = Episodes(watched.alerts.quiet_steps)
        self._best: tuple[float, int] | None = None
        """The best reward, and after which step that was."""

    def look(self, seen: Seen) -> Found | None:
        """See `Watcher`. Evaluations in which nothing was scored do not count."""
        if seen.evaluation is None or "reward" not in seen.evaluation:
            return None
        reward: float = seen.evaluation["reward"]
        if self._best is None or reward >= self._best[0]:
            self._best = (reward, seen.step)
        best, best_step = self._best
        low = best - reward > self._drop * abs(best)
        if not self._episodes.begins(seen.step, holds=low):
            return None
        return Found(
            value=reward,
            text=f"the evaluation after step {seen.step} has reward {reward:.3f}; the best one, "
            f"after step {best_step}, had {best:.3f}",
            advice="compare it with the training reward (`mortal show {run}`): if that still "
            "rises, the policy learns what the held-out problems do not ask for",
        )
