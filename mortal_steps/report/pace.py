"""The present speed of a run: the same figure for its log line, its bar, its report and `mortal
status`."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

RECENT_STEPS = 10
RECENT_S = 30.0
"""Seconds. If steps are short, the mean covers as many as take this long, so that a pause between
two of them is no trend."""


def recent_steps(eval_steps: int | None) -> int:
    """The number of steps over which a run's speed is averaged. It is large enough to contain an
    evaluation, if there are any, so that evaluations always have their share in the speed."""
    return max(RECENT_STEPS, eval_steps or 0)


@dataclass(frozen=True, kw_only=True, slots=True)
class Speed:
    """Means over the last steps, including everything between them."""

    step_s: float
    """Seconds of wall time per train step."""
    tokens_per_s: float
    """Sampled tokens per second of wall time."""

    def eta_s(self, steps_left: int) -> float:
        """Seconds that this number of steps takes."""
        return self.step_s * steps_left


class Pace:
    """The speed of the steps that this process trains."""

    def __init__(self, num_recent: int, now: Callable[[], float] = time.monotonic) -> None:
        """`now`: seconds from any beginning."""
        self.speed: Speed | None = None
        """None before the first step has ended."""
        self._now = now
        self._num_recent = num_recent
        self._marks: deque[tuple[float, int]] = deque()
        """When the first step began and each one ended, and the tokens sampled until then."""

    def begin(self) -> None:
        """A step begins; the first call starts the clock."""
        if not self._marks:
            self._marks.append((self._now(), 0))

    def end(self, num_tokens: int) -> Speed:
        """A step for which so many tokens were sampled ended, with all that follows from it."""
        self._marks.append((self._now(), self._marks[-1][1] + num_tokens))
        long_ago = self._marks[-1][0] - RECENT_S
        while len(self._marks) > self._num_recent + 1 and self._marks[1][0] <= long_ago:
            self._marks.popleft()
        (since, tokens_since), (until, tokens_until) = self._marks[0], self._marks[-1]
        seconds = until - since
        self.speed = Speed(
            step_s=seconds / (len(self._marks) - 1),
            tokens_per_s=(tokens_until - tokens_since) / seconds,
        )
        return self.speed
