"""Time that passes only where somebody sleeps."""

import threading

from mortal_steps.rewards.judge.limits import Clock


class FakeClock:
    """`now` and `sleep` of its own; `slept` are the waits, in order."""

    def __init__(self) -> None:
        self._now = 0.0
        self._moving = threading.Lock()
        self.slept: list[float] = []

    @property
    def clock(self) -> Clock:
        """For what takes one."""
        return Clock(now=self.now, sleep=self.sleep)

    def now(self) -> float:
        """Seconds since it was made."""
        return self._now

    def sleep(self, seconds: float) -> None:
        """Returns at once, that much later."""
        with self._moving:
            self.slept.append(seconds)
            self._now += seconds
