"""What came of a comparison, and what is compared."""

from __future__ import annotations

import enum
from dataclasses import dataclass


class Verdict(enum.IntEnum):
    """What came of a comparison. The first four are its own findings; the others are what the end
    of the process that made it says."""

    EQUAL = 1
    """The answer is equal to the right one."""
    DIFFERENT = 2
    """It is another one."""
    UNPARSED = 3
    """The answer is no mathematical expression."""
    GOLD_UNPARSED = 4
    """The right answer is none."""
    OUT_OF_TIME = 5
    """The comparison took all its CPU time."""
    CRASHED = 6
    """The comparison ended its process: a fault in native code, memory."""
    LOST = 7
    """Somebody else ended the process, or it got no CPU time: nothing is known of the answer."""


COMPLETION_FAILED = (Verdict.UNPARSED, Verdict.OUT_OF_TIME, Verdict.CRASHED)
"""What a completion brought about itself."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Comparison:
    """A right answer and a completion's text; the right answer with itself if that is None."""

    gold: str
    said: str | None


@dataclass(frozen=True, kw_only=True, slots=True)
class Batch:
    """What a server is asked."""

    sheets: tuple[tuple[Comparison, ...], ...]
    """Comparisons that one process makes in turn; best of the same right answer."""
    cpu_s: float
    """CPU time of each comparison."""
