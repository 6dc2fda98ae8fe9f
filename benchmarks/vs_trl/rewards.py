"""Rewards that a random model earns now and then, and that ask for long completions."""

from collections.abc import Sequence
from typing import Any

FULL_LENGTH = 64


def repeats_letter(completions: Sequence[str], answer: Sequence[str], **kwargs: Any) -> list[float]:
    """Share of 64 characters that are the letter asked for."""
    return [
        text.count(letter) / FULL_LENGTH for text, letter in zip(completions, answer, strict=True)
    ]


def digits(completions: Sequence[str], **kwargs: Any) -> list[float]:
    """Digits in the completion as a share of 64."""
    return [sum(map(str.isdigit, text)) / FULL_LENGTH for text in completions]
