"""How a reward host was lost, and what a user is told of it."""

from __future__ import annotations

import contextlib
import signal

from mortal_steps.rewards.calling import dispatch
from mortal_steps.rewards.calling.calls import CallFailure
from mortal_steps.rewards.calling.dispatch import timed_out

SPOILT = "wrote into the connection of its process"


class HostLost(Exception):
    """The host gave no answer; it is gone by now."""

    def __init__(self, how: str | None, stack: str) -> None:
        super().__init__(how)
        self.how = how
        """Exit code or signal it ended with, or what was wrong with its answer; None: it took too
        long and was killed."""
        self.stack = stack
        """Where in its code it was, as far as known."""


def ending(code: int | None) -> str:
    """What is told of a process with this exit code; None: it has not ended."""
    if code is None:
        return "it closed its connection"
    if code < 0:
        with contextlib.suppress(ValueError):
            return signal.Signals(-code).name
    return f"exit code {code}"


def failure(lost: HostLost, timeout_s: float) -> CallFailure:
    """What becomes of the call of one function in which the host was lost."""
    if lost.how is None:
        return timed_out(timeout_s, lost.stack)
    spoilt = lost.how.startswith(SPOILT)
    return CallFailure(
        kind="crash",
        message=lost.how if spoilt else f"ended its process ({lost.how})",
        remedy="Functions must leave the descriptors of their process alone."
        if spoilt
        else "Faults in native code do so, and SIGKILL may mean that memory ran out.",
        trace=lost.stack,
    )


def stack_of(dump: str) -> str:
    """The calls inside the reward function, innermost first, from what faulthandler wrote.

    One block per thread, the newest thread first; the one that called a function has a frame of
    dispatch.py.
    """
    for block in dump.split("\n\n"):
        frames = [line for line in block.splitlines() if line.startswith("  File ")]
        ours = [number for number, line in enumerate(frames) if dispatch.__file__ in line]
        if ours:
            return "\n".join(["Where it was, innermost call first:", *frames[: ours[0]]])
    return ""
