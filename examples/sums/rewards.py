"""Rewards of the sums task: the last number is the right one, and the answer ends with it."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

Chat = Sequence[dict[str, str]]


def correct(completions: Sequence[Chat], answer: Sequence[str], **kwargs: Any) -> list[float]:
    """1 where the last number that the model says is the right one."""
    return [
        float(re.findall(r"\d+", text)[-1:] == [right])
        for text, right in zip(map(said, completions), answer, strict=True)
    ]


def ends_there(completions: Sequence[Chat], answer: Sequence[str], **kwargs: Any) -> list[float]:
    """1 where nothing but a full stop follows the right number."""
    return [
        float(re.search(rf"(?<!\d){right}\.?\s*$", text) is not None)
        for text, right in zip(map(said, completions), answer, strict=True)
    ]


def said(completion: Chat) -> str:
    """The text of an answer in a chat."""
    return completion[0]["content"]
