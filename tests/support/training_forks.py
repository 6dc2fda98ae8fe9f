"""Processes that have imported torch and TRL before they begin.

Python has one fork server for each process, and only what was preloaded first counts, so all tests
name the same modules.
"""

import multiprocessing
from multiprocessing.context import ForkServerContext
from multiprocessing.reduction import DupFd

PRELOADED = "tests.support.preloaded.training"


def training_forks() -> ForkServerContext:
    """Return the context in which processes are forked off one that has imported them."""
    made = multiprocessing.get_context("forkserver")
    made.set_forkserver_preload([PRELOADED])
    return made


class Given:
    """A descriptor that the new process has, too."""

    def __init__(self, descriptor):
        self._descriptor = descriptor

    def __reduce__(self):
        return _open, (DupFd(self._descriptor),)


def _open(dup):
    return dup.detach()
