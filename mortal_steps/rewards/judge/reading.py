"""Reads a score from a judge's answer. Nothing is guessed: an answer without a score is not a 0."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import Any, NoReturn

from mortal_steps.system.texts import printable

FENCED = re.compile(r"```(?:json)?[ \t]*\n(.*?)\n?[ \t]*```", re.DOTALL)
SHOWN = 120
LONGEST_REASON = 500
"""Characters of an answer in a message, and of a reason that is kept."""


class UnusableAnswerError(Exception):
    """A judge's answer is no score; the message says why."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Grade:
    """A judge's answer."""

    score: float
    reason: str


def read_grade(text: object, *, low: float, high: float) -> Grade:
    """The grade in an answer: one JSON object, bare or as one fenced block, with a `score`.

    Raises `UnusableAnswerError` for anything else.
    """
    if not isinstance(text, str) or not text.strip():
        raise UnusableAnswerError("the answer is empty")
    fenced = FENCED.fullmatch(text.strip())
    try:
        said = json.loads(
            fenced[1] if fenced else text, parse_constant=_refuse, object_pairs_hook=_once_each
        )
    except (ValueError, RecursionError):
        raise UnusableAnswerError(f"the answer is no JSON object: {_shown(text)}") from None
    if not isinstance(said, dict) or "score" not in said:
        raise UnusableAnswerError(f"the answer has no score: {_shown(text)}")
    score = said["score"]
    if isinstance(score, bool) or not isinstance(score, int | float):
        raise UnusableAnswerError(f"the score is no number: {_shown(text)}")
    if not low <= score <= high:
        raise UnusableAnswerError(f"the score is not from {low:g} to {high:g}: {_shown(text)}")
    return Grade(score=float(score), reason=printable(str(said.get("reason", ""))[:LONGEST_REASON]))


def _refuse(constant: str) -> NoReturn:
    raise ValueError(constant)


def _once_each(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError("a key stands there twice")
    return found


def _shown(text: str) -> str:
    line = printable(" ".join(text[: 4 * SHOWN].split()))
    return line if len(line) <= SHOWN else f"{line[: SHOWN - 3]}..."
