"""`type = "overlong"`: a soft punishment of completions that come near the longest length.

Equation 13 of DAPO (<https://arxiv.org/abs/2503.14476>).
"""

from collections.abc import Callable, Sequence
from typing import Any, Literal, Self

from pydantic import Field, model_validator

from mortal_steps.config.rewards import RewardTerm


class Overlong(RewardTerm, extra="forbid"):
    """0 up to `max_length` - `buffer` tokens; from there down to -1 at `max_length`, and beyond."""

    type: Literal["overlong"] = "overlong"
    max_length: int = Field(gt=0)
    """Tokens at which the punishment is whole; usually `training.max_completion_length`."""
    buffer: int = Field(gt=0)
    """Over how many tokens before that it grows; DAPO has 4096 before 20480."""

    @model_validator(mode="after")
    def _fits(self) -> Self:
        if self.buffer > self.max_length:
            raise ValueError(
                f"buffer = {self.buffer} is longer than max_length = {self.max_length}; make it "
                "smaller"
            )
        return self

    def load(self) -> Callable[..., list[float]]:
        def overlong(completion_ids: Sequence[Sequence[int]], **columns: Any) -> list[float]:
            """-1 to 0, by the number of tokens."""
            free = self.max_length - self.buffer
            return [
                max(-1.0, min(0.0, (free - len(tokens)) / self.buffer)) for tokens in completion_ids
            ]

        return overlong
