"""Whether a completion is the dataset's answer, letter by letter."""

from __future__ import annotations

import re
import string
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

from mortal_steps.rewards.base import text_of
from mortal_steps.rewards.columns import DatasetRowError, column, gold_text
from mortal_steps.rewards.extraction import extract_answer, without_thoughts

Ignored = Literal["case", "space", "punctuation"]
Judged = Literal["completion", "answer"]

_MARK = f"[{re.escape(string.punctuation)}]"
_PUNCTUATION = re.compile(
    rf"(?P<counts>(?<=\d){_MARK}(?=\d)|(?<!\w)-(?=\.?\d)|(?<![\w.])\.(?=\d))|{_MARK}"
)
"""Marks; those that belong to a number count: 3.5 is not 35, 1/2 not 12, -5 not 5."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ExactAnswer:
    """1 for a completion that is the answer, else 0; see `Exact` for what its settings mean."""

    column: str = "answer"
    judged: Judged = "completion"
    ignore: tuple[Ignored, ...] = ()

    def matches_answer(self, completions: Sequence[Any], **columns: Any) -> list[float]:
        """1 where the completion is the answer, else 0."""
        golds = column(columns, self.column, reward="exact")
        return [
            float(self._said(text_of(completion)) in self._right(gold, row))
            for row, (completion, gold) in enumerate(zip(completions, golds, strict=True))
        ]

    def _said(self, text: str) -> str | None:
        said = text if self.judged == "completion" else extract_answer(without_thoughts(text))
        return None if said is None else normalised(said, self.ignore)

    def _right(self, gold: object, row: int) -> set[str]:
        several = gold if isinstance(gold, list | tuple) else [gold]
        if not several:
            raise DatasetRowError(column=self.column, row=row, value=gold, wrong="is empty")
        texts = [gold_text(one, column=self.column, row=row) for one in several]
        right = {normalised(text, self.ignore) for text in texts}
        if "" in right:
            wrong = f"is nothing but what `ignore = {list(self.ignore)}` leaves out"
            raise DatasetRowError(column=self.column, row=row, value=gold, wrong=wrong)
        return right


def normalised(text: str, ignore: Sequence[Ignored]) -> str:
    """The text without the differences that do not count."""
    if "case" in ignore:
        text = text.casefold()
    if "punctuation" in ignore:
        text = _PUNCTUATION.sub(lambda mark: mark["counts"] or "", text)
    if "space" in ignore:
        text = " ".join(text.split())
    return text.strip()
