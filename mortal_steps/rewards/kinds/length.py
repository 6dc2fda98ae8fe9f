"""`type = "length"`: how near a completion is to the length it should have.

The length term of L1's LCPO-Exact, or with `at_most` of LCPO-Max, clipped to 0
(<https://arxiv.org/abs/2503.04697>).
"""

from collections.abc import Callable, Sequence
from typing import Annotated, Any, Literal

from pydantic import Field

from mortal_steps.config.rewards import RewardTerm
from mortal_steps.rewards.base import text_of
from mortal_steps.rewards.columns import DatasetRowError, column


class Length(RewardTerm, extra="forbid"):
    """1 for the wanted length, 1 / `tolerance` less per unit away, at least 0."""

    type: Literal["length"] = "length"
    target: Annotated[int, Field(ge=0)] | str
    """The wanted length, or the dataset's column that holds it."""
    tolerance: float = Field(gt=0)
    """How far from that the score is 0."""
    unit: Literal["tokens", "characters"] = "tokens"
    """What is counted."""
    at_most: bool = False
    """Give 1 to what is shorter than the wanted length, too."""

    def load(self) -> Callable[..., list[float]]:
        """Return the reward function. It raises `DatasetRowError` for a row without a length."""

        def near_length(completions: Sequence[Any], **columns: Any) -> list[float]:
            """Return 0 to 1, by the length."""
            if self.unit == "tokens":
                lengths = list(map(len, column(columns, "completion_ids", reward="length")))
            else:
                lengths = [len(text_of(completion)) for completion in completions]
            targets = self._targets(columns, len(lengths))
            return [
                self._score(length - target)
                for length, target in zip(lengths, targets, strict=True)
            ]

        return near_length

    def _targets(self, columns: dict[str, Any], count: int) -> Sequence[float]:
        if isinstance(self.target, int):
            return [self.target] * count
        targets = column(columns, self.target, reward="length")
        for row, value in enumerate(targets):
            if isinstance(value, bool) or not isinstance(value, int | float) or not value >= 0:
                wrong = "is no length, which is a number of 0 or more"
                raise DatasetRowError(column=self.target, row=row, value=value, wrong=wrong)
        return targets

    def _score(self, excess: float) -> float:
        away = max(0.0, excess) if self.at_most else abs(excess)
        return max(0.0, 1.0 - away / self.tolerance)
