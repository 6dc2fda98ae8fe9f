"""A reward that a random model has some of, and that asks for long completions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

FULL_LENGTH = 64


def digits(completions: Sequence[str], **kwargs: Any) -> list[float]:
    """Digits in the completion as a share of 64."""
    return [sum(map(str.isdigit, text)) / FULL_LENGTH for text in completions]
