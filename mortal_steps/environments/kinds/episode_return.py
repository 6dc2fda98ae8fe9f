"""The return of an episode: the rewards of its steps as one number."""

from typing import Literal

ReturnRule = Literal["sum", "last"]


class EpisodeReturn:
    """Adds up the rewards of steps, or keeps the last one; a step may have none."""

    def __init__(self, how: ReturnRule) -> None:
        self._how = how
        self.total: float | None = None
        """Reward of the episode so far; None before a step has had one."""

    def add(self, reward: float | None) -> None:
        """Note a step's reward."""
        if reward is None:
            return
        before = 0.0 if self.total is None or self._how == "last" else self.total
        self.total = before + float(reward)
