"""Housekeeping: remove what runs leave on the disk, and check that this machine has what they
need."""

from dataclasses import dataclass
from typing import Literal

Level = Literal["ok", "warning", "problem"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Finding:
    """The result of one check."""

    level: Level
    """A `problem` prevents runs from working; a `warning` does not, but should be known."""
    what: str
    word: str
    """What was found and, if something is wrong, what to do."""


def ok(what: str, word: str) -> Finding:
    return Finding(level="ok", what=what, word=word)


def warning(what: str, word: str) -> Finding:
    return Finding(level="warning", what=what, word=word)


def problem(what: str, word: str) -> Finding:
    """Return a complaint with which runs do not work."""
    return Finding(level="problem", what=what, word=word)
