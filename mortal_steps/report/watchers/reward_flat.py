"""All rewards within each group are equal, so that all advantages are 0."""

from __future__ import annotations

from collections import deque

from mortal_steps.report.units import number
from mortal_steps.report.watchers.base import Episodes, Found, Seen, Watched
from mortal_steps.runs.notices import Level

FLAT_STEPS = 10
"""Steps in a row without any difference after which it is reported."""
EQUAL = "frac_reward_zero_std"
"""TRL's name for the share of groups whose rewards are all equal."""


class RewardFlat:
    """Looks for `FLAT_STEPS` steps in a row from which nothing can be learned."""

    event = "mortal.reward.flat"
    level: Level = "warning"

    def __init__(self, watched: Watched) -> None:
        self._episodes = Episodes(watched.alerts.quiet_steps)
        self._last: deque[float] = deque(maxlen=FLAT_STEPS)
        """Rewards of the last steps, as long as they are flat."""

    def look(self, seen: Seen) -> Found | None:
        """See `Watcher`."""
        if seen.metrics is None:
            return None
        reward = seen.metrics["reward"]
        if reward is None or seen.metrics.get(EQUAL) != 1.0:
            self._last.clear()
        else:
            self._last.append(reward)
        if not self._episodes.begins(seen.step, holds=len(self._last) == FLAT_STEPS):
            return None
        found = sorted({number(reward) for reward in self._last})
        between = found[0] if len(found) == 1 else f"between {found[0]} and {found[-1]}"
        return Found(
            value=reward,
            text=f"nothing to learn from: the rewards of every group of steps "
            f"{seen.step - FLAT_STEPS + 1} to {seen.step} are equal (reward {between}), so all "
            "advantages are 0",
            advice="if every completion fails, take easier problems or a reward that tells bad "
            "from worse; if every one succeeds, take harder problems; else raise "
            "rollout.temperature or training.num_generations",
        )
