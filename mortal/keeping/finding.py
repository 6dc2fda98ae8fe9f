"""What `mortal doctor` has found: one line each."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Level = Literal["ok", "warning", "problem"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Finding:
    """One thing that was looked at."""

    level: Level
    """A problem keeps runs from working; a warning does not, and should be known."""
    what: str
    word: str
    """How it is, and what to do where it is not well."""


def ok(what: str, word: str) -> Finding:
    """All is well."""
    return Finding(level="ok", what=what, word=word)


def warning(what: str, word: str) -> Finding:
    """Runs work; somebody should know."""
    return Finding(level="warning", what=what, word=word)


def problem(what: str, word: str) -> Finding:
    """Runs do not work."""
    return Finding(level="problem", what=what, word=word)
