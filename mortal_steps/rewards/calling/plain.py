"""Converts what a reward function reported to plain values and short texts that can be stored and
shown."""

from __future__ import annotations

import math
from typing import Any

from mortal_steps.rewards.calling.calls import Plain
from mortal_steps.system.texts import printable, storable

LONGEST_NAME = 200
LONGEST_VALUE = 100_000
"""Characters of the name of a metric or column, and of a text in a logged column."""


def number_of(value: Any) -> float | None:
    """Return a Python, NumPy or torch number as a float; None if it is no number."""
    try:
        value = value.item() if hasattr(value, "item") else value
        return float(value) if isinstance(value, bool | int | float) else None
    except (ValueError, OverflowError, RuntimeError):  # an array of several; an int beyond 1e308
        return None


def plain_value(value: Any) -> Plain:
    """Return a logged value as plain Python, as a user's types are unknown outside; None for a
    number that JSON lacks (nan, infinity)."""
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, int) and -(2**63) <= value < 2**63:
        return int(value)
    if isinstance(value, float):
        return float(value) if math.isfinite(value) else None
    text = str.__str__(value) if isinstance(value, str) else str(value)
    return storable(cut(text, LONGEST_VALUE))


def short_name(name: str) -> str:
    return one_line(str(name), LONGEST_NAME)


def shown(value: Any) -> str:
    return f"{one_line(repr(value), 80)} ({type(value).__name__})"


def one_line(text: str, length: int) -> str:
    """Return one storable, printable line; what exceeds `length` is not looked at."""
    return cut(printable(" ".join(text[: 4 * length].split())), length)


def cut(text: str, length: int) -> str:
    return text if len(text) <= length else f"{text[: length - 3]}..."
