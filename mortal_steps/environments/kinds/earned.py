"""What the steps of an episode have earned, as one number."""

from typing import Literal

HowEarned = Literal["sum", "last"]


class Earned:
    """Adds up the rewards of steps, or keeps the last one; a step may have none."""

    def __init__(self, how: HowEarned) -> None:
        self._how = how
        self.total: float | None = None
        """None: no step has had a reward."""

    def add(self, reward: float | None) -> None:
        """Note a step's reward."""
        if reward is None:
            return
        before = 0.0 if self.total is None or self._how == "last" else self.total
        self.total = before + float(reward)
