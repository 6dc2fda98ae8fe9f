"""The training reward falls, and stays down."""

from __future__ import annotations

import math
from collections import deque

from mortal_steps.report.watchers.base import Episodes, Found, Seen, Watched
from mortal_steps.runs.notices import Level

STANDARD_ERRORS = 6.0
"""By which chance alone never moves a mean away from the best of thousands."""


class RewardCollapsed:
    """Compares the moving mean of the reward with its best; see `[alerts] reward_drop`."""

    event = "mortal.reward.collapsed"
    level: Level = "warning"

    def __init__(self, watched: Watched) -> None:
        alerts = watched.alerts
        self._drop = alerts.reward_drop
        self._window = alerts.reward_window
        self._patience = alerts.reward_drop_steps
        self._recent: deque[float] = deque(maxlen=alerts.reward_window)
        self._noise = Noise()
        self._episodes = Episodes(alerts.quiet_steps)
        self._best = -math.inf
        self._best_step = 0
        """After which step the mean was best."""
        self._low = 0
        """Steps in a row that the mean has been low."""

    def look(self, seen: Seen) -> Found | None:
        """See `Watcher`. Steps in which nothing was scored do not count."""
        if seen.metrics is None or seen.metrics["reward"] is None:
            return None
        self._recent.append(seen.metrics["reward"])
        self._noise.add(seen.metrics["reward"])
        if len(self._recent) < self._window:
            return None
        mean = math.fsum(self._recent) / self._window
        if mean >= self._best:
            self._best, self._best_step = mean, seen.step
        by_chance = STANDARD_ERRORS * self._noise.deviation / math.sqrt(self._window)
        low = self._best - mean > max(self._drop * abs(self._best), by_chance)
        self._low = self._low + 1 if low else 0
        if not self._episodes.begins(seen.step, holds=self._low >= self._patience):
            return None
        return Found(
            value=mean,
            text=f"the mean training reward of the last {self._window} steps is {mean:.3f}; it "
            f"was {self._best:.3f} after step {self._best_step}",
            advice="read what the policy writes now (`mortal show {run} --samples 3`); to go on "
            f"from before, `mortal fork {{run}} --at-step N` with a checkpoint up to step "
            f"{self._best_step}",
        )


class Noise:
    """How far apart the rewards of two steps are by chance: a trend hardly adds to it."""

    def __init__(self) -> None:
        self._last: float | None = None
        self._squares = 0.0
        self._count = 0

    def add(self, reward: float) -> None:
        """The reward of the next step."""
        if self._last is not None:
            self._squares += (reward - self._last) ** 2
            self._count += 1
        self._last = reward

    @property
    def deviation(self) -> float:
        """Standard deviation of a step's reward about its expectation."""
        return math.sqrt(self._squares / (2 * self._count)) if self._count else 0.0
