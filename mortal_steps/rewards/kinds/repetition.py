"""`type = "repetition"`: a punishment of completions that repeat themselves.

By n-grams: appendix C.2 of "Demystifying Long Chain-of-Thought Reasoning in LLMs"
(<https://arxiv.org/abs/2502.03373>), as one number for the completion.
"""

from collections.abc import Callable, Hashable, Sequence
from typing import Any, Literal

from pydantic import Field

from mortal_steps.config.rewards import RewardTerm
from mortal_steps.rewards.base import text_of
from mortal_steps.rewards.columns import column


class Repetition(RewardTerm, extra="forbid"):
    """`penalty` times the share of n-grams that stood in the completion before."""

    type: Literal["repetition"] = "repetition"
    ngram: int = Field(3, ge=1)
    """Length of an n-gram."""
    penalty: float = Field(-1.0, le=0)
    """What a completion of one n-gram over and over comes near to."""
    unit: Literal["tokens", "words"] = "tokens"
    """What an n-gram consists of; words are parted by white space, and case does not count."""

    def load(self) -> Callable[..., list[float]]:
        def repetition(completions: Sequence[Any], **columns: Any) -> list[float]:
            """Return `penalty` to 0; 0 for what is shorter than an n-gram."""
            units: Sequence[Sequence[Hashable]] = (
                column(columns, "completion_ids", reward="repetition")
                if self.unit == "tokens"
                else [text_of(completion).lower().split() for completion in completions]
            )
            return [self.penalty * repeated_share(one, self.ngram) for one in units]

        return repetition


def repetition_penalty(completion_ids: Sequence[Sequence[int]], **columns: Any) -> list[float]:
    """Minus the share of 3-grams of tokens that stood in the completion before, -1 to 0."""
    return [-repeated_share(tokens, 3) for tokens in completion_ids]


def repeated_share(units: Sequence[Hashable], ngram: int) -> float:
    """Return the share of repeated n-grams, 0 to 1: of `a b a b a`, by two, 2 of 4."""
    grams = [tuple(units[begin : begin + ngram]) for begin in range(len(units) - ngram + 1)]
    return 1 - len(set(grams)) / len(grams) if grams else 0.0
