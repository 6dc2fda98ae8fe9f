"""Processes that have imported torch and TRL before they begin.

Python has one fork server for each process, and only what was preloaded first counts, so all tests
name the same modules.
"""

import contextlib
import functools
import sys
from multiprocessing import forkserver, resource_tracker, util
from multiprocessing.context import ForkServerContext
from multiprocessing.reduction import DupFd
from unittest.mock import patch

from tests.support.forking.environment import as_at_first
from tests.support.paths import ROOT

PRELOADED = "tests.support.preloaded.training"
SPARE = None
"""The fork of this process that becomes its fork server, in a worker that was forked itself."""


class TrainingForks(ForkServerContext):
    """The context in which processes are forked off one that has imported them."""

    def Process(self, *args, **options):
        self.set_forkserver_preload([PRELOADED])
        _start()
        return super().Process(*args, **options)


def training_forks() -> TrainingForks:
    return TrainingForks()


@functools.cache
def _start() -> None:
    """Whatever the first test has changed: where libraries have read other variables, nothing else
    is forked, and Python's fork server looks for what it preloads in the working folder, and goes
    on without it where it is not."""
    with as_at_first(), contextlib.chdir(ROOT), contextlib.ExitStack() as patches:
        if SPARE is not None:
            resource_tracker.ensure_running()  # it is an interpreter of its own
            patches.enter_context(patch.object(util, "spawnv_passfds", SPARE.become))
        forkserver.ensure_running()


def check_preloaded() -> None:
    """Raise unless this process was forked off one that has imported what it needs."""
    if PRELOADED not in sys.modules:
        raise RuntimeError(f"{PRELOADED} was not imported before this process was forked")


class Given:
    """A descriptor that the new process has, too."""

    def __init__(self, descriptor):
        self._descriptor = descriptor

    def __reduce__(self):
        return _open, (DupFd(self._descriptor),)


def _open(dup):
    return dup.detach()
