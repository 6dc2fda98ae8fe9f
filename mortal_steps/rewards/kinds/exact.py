"""`type = "exact"`: whether a completion is the dataset's answer, letter by letter."""

import re
import string
from collections.abc import Callable, Sequence
from typing import Any, Literal

from mortal_steps.config.rewards import RewardTerm
from mortal_steps.rewards.base import text_of
from mortal_steps.rewards.columns import DatasetRowError, column, gold_text
from mortal_steps.rewards.extraction import extract_answer, without_thoughts

_MARK = f"[{re.escape(string.punctuation)}]"
_PUNCTUATION = re.compile(
    rf"(?P<counts>(?<=\d){_MARK}(?=\d)|(?<!\w)-(?=\.?\d)|(?<![\w.])\.(?=\d))|{_MARK}"
)
"""Marks; those that belong to a number count: 3.5 is not 35, 1/2 not 12, -5 not 5."""


class Exact(RewardTerm, extra="forbid"):
    """1 for a completion that is the answer, else 0. White space around both does not count."""

    type: Literal["exact"] = "exact"
    column: str = "answer"
    """The dataset's column with the right answer: text, a number, or a list of several that are all
    right."""
    judged: Literal["completion", "answer"] = "completion"
    """`completion` compares all of it; `answer` what stands in its last `<answer>` tags behind its
    thoughts, which is 0 without such tags."""
    ignore: tuple[Literal["case", "space", "punctuation"], ...] = ()
    """Differences that do not count: `case`; `space`, how much white space stands where there is
    some; `punctuation`, ASCII's but for what belongs to a number, such as the point in 3.5."""

    def load(self) -> Callable[..., list[float]]:
        """Return the function, which raises `DatasetRowError` without an answer."""
        return self.matches_answer

    def matches_answer(self, completions: Sequence[Any], **columns: Any) -> list[float]:
        """Return 1 where the completion is the answer, else 0."""
        golds = column(columns, self.column, reward="exact")
        return [
            float(self._given(text_of(completion)) in self._right(gold, row))
            for row, (completion, gold) in enumerate(zip(completions, golds, strict=True))
        ]

    def _given(self, text: str) -> str | None:
        given = text if self.judged == "completion" else extract_answer(without_thoughts(text))
        return None if given is None else self._normalised(given)

    def _right(self, gold: object, row: int) -> set[str]:
        several = gold if isinstance(gold, list | tuple) else [gold]
        if not several:
            raise DatasetRowError(column=self.column, row=row, value=gold, wrong="is empty")
        texts = [gold_text(one, column=self.column, row=row) for one in several]
        right = {self._normalised(text) for text in texts}
        if "" in right:
            wrong = f"is nothing but what `ignore = {list(self.ignore)}` leaves out"
            raise DatasetRowError(column=self.column, row=row, value=gold, wrong=wrong)
        return right

    def _normalised(self, text: str) -> str:
        if "case" in self.ignore:
            text = text.casefold()
        if "punctuation" in self.ignore:
            text = _PUNCTUATION.sub(lambda mark: mark["counts"] or "", text)
        if "space" in self.ignore:
            text = " ".join(text.split())
        return text.strip()


def exact_match(completions: Sequence[Any], **columns: Any) -> list[float]:
    """Return 1 where the completion is the column `answer`, or one of several there, but for white
    space around it; else 0. Raises `DatasetRowError` for a row without an answer."""
    return Exact().matches_answer(completions, **columns)
