"""`type = "get_reward"`: what an environment says itself of its episode, as in TRL."""

from collections.abc import Callable
from typing import Any, Literal

from mortal_steps.config.rewards import RewardTerm


class GetReward(RewardTerm, extra="forbid"):
    """The environment's own `get_reward()`, called in its process once its episode has ended; None
    for an episode of another class. A run has one for each class that defines the method."""

    type: Literal["get_reward"] = "get_reward"
    environment: str
    """Name of the class."""

    @property
    def full_name(self) -> str:
        return self.environment

    @property
    def with_environment(self) -> bool:
        return True

    def load(self) -> Callable[..., Any]:
        """Raise `TypeError`: the method is called where its environment is."""
        raise TypeError(f"get_reward of {self.environment} is called in its own process")
