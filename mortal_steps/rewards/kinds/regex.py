"""`type = "regex"`: whether a completion matches a regular expression."""

import re
from collections.abc import Callable, Sequence
from typing import Any, Literal

from pydantic import field_validator

from mortal_steps.config.rewards import RewardTerm
from mortal_steps.rewards.base import text_of


class Regex(RewardTerm, extra="forbid"):
    """1 for a completion that matches, else 0."""

    type: Literal["regex"] = "regex"
    pattern: str
    """A regular expression of Python's `re`; `(?s)` at its beginning lets `.` match newlines."""
    whole: bool = False
    """Whether the pattern has to match the completion from end to end, but for white space around
    it; otherwise it is searched for."""

    @field_validator("pattern")
    @classmethod
    def _compiles(cls, pattern: str) -> str:
        try:
            re.compile(pattern)
        except re.error as error:
            raise ValueError(f"is no regular expression: {error}") from None
        return pattern

    def load(self) -> Callable[..., list[float]]:
        compiled = re.compile(self.pattern)

        def matches(completions: Sequence[Any], **columns: Any) -> list[float]:
            """1 where the completion matches the pattern, else 0."""
            texts = map(text_of, completions)
            if self.whole:
                return [float(compiled.fullmatch(text.strip()) is not None) for text in texts]
            return [float(compiled.search(text) is not None) for text in texts]

        return matches
