"""`type = "format"`: whether a completion is thoughts, then an answer, each in its tags.

The format of DeepSeek-R1-Zero (<https://arxiv.org/abs/2501.12948>, table 1).
"""

import re
from collections.abc import Callable, Sequence
from typing import Any, Literal

from mortal_steps.config.rewards import RewardTerm
from mortal_steps.rewards.base import text_of

TAGS = ("<think>", "</think>", "<answer>", "</answer>")
_STRICT = re.compile(r"<think>.*</think>\s*<answer>(?!\s*</answer>).*</answer>", re.DOTALL)


class Format(RewardTerm, extra="forbid"):
    """1 for `<think>…</think><answer>…</answer>`, else 0."""

    type: Literal["format"] = "format"
    strict: bool = True
    """Whether there may be nothing else: each tag once, white space alone outside of them, and an
    answer that is not empty. Otherwise the tags have to stand there in this order, with anything
    around them."""
    opened: bool = False
    """Whether the chat template ends the prompt with `<think>`, so that completions lack it."""

    def load(self) -> Callable[..., list[float]]:
        follows = follows_strictly if self.strict else follows_softly

        def has_format(completions: Sequence[Any], **columns: Any) -> list[float]:
            """1 where the completion has the format, else 0."""
            begin = TAGS[0] if self.opened else ""
            return [float(follows(begin + text_of(completion))) for completion in completions]

        return has_format


def think_answer_format(completions: Sequence[Any], **columns: Any) -> list[float]:
    """1 for thoughts and an answer in their tags and nothing else, else 0; `Format` in strict."""
    return [float(follows_strictly(text_of(completion))) for completion in completions]


def think_answer_soft(completions: Sequence[Any], **columns: Any) -> list[float]:
    """1 where the four tags stand in their order, whatever is around them, else 0."""
    return [float(follows_softly(text_of(completion))) for completion in completions]


def follows_strictly(text: str) -> bool:
    """Whether a text is thoughts and an answer in their tags, and nothing else."""
    return all(text.count(tag) == 1 for tag in TAGS) and bool(_STRICT.fullmatch(text.strip()))


def follows_softly(text: str) -> bool:
    """Whether the four tags stand in a text in their order."""
    at = 0
    for tag in TAGS:
        at = text.find(tag, at)
        if at < 0:
            return False
        at += len(tag)
    return True
