"""How fast a run is just now: one figure for its line, its bar, its report and `mortal status`."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

from mortal_steps.config import RunConfig

RECENT_STEPS = 10
RECENT_S = 30.0
"""Of short steps, as many count as fill this time: a pause between two of them is no trend."""


def recent_steps(config: RunConfig) -> int:
    """Over how many steps a run's speed is a mean: as many as hold an evaluation, if there are any,
    so that it always has its share in the speed."""
    return max(RECENT_STEPS, config.evaluation.eval_steps)


@dataclass(frozen=True, kw_only=True, slots=True)
class Speed:
    """Means over the last steps, with all that came between them."""

    step_s: float
    """Seconds of wall time per train step."""
    tokens_per_s: float
    """Sampled tokens per second of wall time."""

    def eta_s(self, steps_left: int) -> float:
        """Seconds that so many steps take."""
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
        """A step begins; the first one starts the clock."""
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
