"""The inside of the reward host: the process that reward functions run in.

It is started, watched and killed by `HostProcess`; functions run in its main thread, async ones in
one event loop beside it.
"""

from __future__ import annotations

import ctypes
import faulthandler
import os
import signal
import sys
from collections.abc import Mapping, Sequence

from mortal_steps import errors
from mortal_steps.errors import MortalError
from mortal_steps.rewards.calls import CallArguments, Outcome
from mortal_steps.rewards.dispatch import call_functions, is_async
from mortal_steps.rewards.loading import load_reward

PR_SET_PDEATHSIG = 1
"""From <linux/prctl.h>."""


class RewardHost:
    """Holds the functions of a run and the completions they are called with.

    `functions` gives what to load under each name; `stacks` is the descriptor of a file that learns
    where in its code the process was when a call took too long or crashed.
    """

    def __init__(self, *, functions: Mapping[str, str], stacks: int) -> None:
        _die_with_owner()
        faulthandler.enable(stacks)
        self._stacks = stacks
        self._functions = {name: load_reward(spec) for name, spec in functions.items()}
        self._arguments: CallArguments | None = None

    def turns(self) -> list[list[str]]:
        """In which order functions are called: plain ones one by one, async ones together."""
        waiting = [name for name, function in self._functions.items() if is_async(function)]
        plain = [[name] for name in self._functions if name not in waiting]
        return [*plain, waiting] if waiting else plain

    def take(self, *, arguments: CallArguments) -> None:
        """Keep what the next calls are about."""
        self._arguments = arguments

    def call(self, *, names: Sequence[str], timeout_s: float) -> dict[str, Outcome]:
        """Call functions on what was taken; raises the `MortalError` that one of them raises."""
        assert self._arguments is not None  # HostProcess calls `take` before
        functions = {name: self._functions[name] for name in names}
        os.ftruncate(self._stacks, 0)
        os.lseek(self._stacks, 0, os.SEEK_SET)
        faulthandler.dump_traceback_later(timeout_s, file=self._stacks)
        try:
            return call_functions(functions, self._arguments, timeout_s=timeout_s)
        except MortalError as error:
            raise _known_outside(error) from error
        finally:
            faulthandler.cancel_dump_traceback_later()


def _known_outside(error: MortalError) -> MortalError:
    """The error as the nearest class of our own tree: its module may be loaded in here alone."""
    kind = next(base for base in type(error).__mro__ if base.__module__ == errors.__name__)
    return error if type(error) is kind else kind(f"{type(error).__name__}: {error}")


def _die_with_owner() -> None:
    """Let the kernel end this process with its owner.

    No thread of ours could: none runs while a regular expression holds the interpreter. Elsewhere
    than on Linux the closed connection ends the process, after the call in hand.
    """
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
