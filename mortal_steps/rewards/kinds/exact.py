"""`type = "exact"`: whether a completion is the dataset's answer, letter by letter."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

from mortal_steps.config.rewards import RewardTerm
from mortal_steps.rewards.exact_answer import ExactAnswer, Ignored, Judged


class Exact(RewardTerm, extra="forbid"):
    """1 for a completion that is the answer, else 0. White space around both does not count."""

    type: Literal["exact"] = "exact"
    column: str = "answer"
    """The dataset's column with the right answer: text, a number, or a list of several that are all
    right."""
    judged: Judged = "completion"
    """`completion` compares all of it; `answer` what stands in its last `<answer>` tags behind its
    thoughts, which is 0 without such tags."""
    ignore: tuple[Ignored, ...] = ()
    """Differences that do not count: `case`; `space`, how much white space stands where there is
    some; `punctuation`, ASCII's but for what belongs to a number, such as the point in 3.5."""

    def load(self) -> Callable[..., list[float]]:
        """The reward function. It raises `DatasetRowError` for a row without an answer."""
        judging = ExactAnswer(column=self.column, judged=self.judged, ignore=self.ignore)
        return judging.matches_answer
