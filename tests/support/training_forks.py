"""Processes that have imported torch and TRL before they begin.

Python has one fork server for each process, and only what was preloaded first counts, so all tests
name the same modules.
"""

import multiprocessing
from multiprocessing.context import ForkServerContext

PRELOADED = "tests.support.preloaded.training"


def training_forks() -> ForkServerContext:
    """Return the context in which processes are forked off one that has imported them."""
    made = multiprocessing.get_context("forkserver")
    made.set_forkserver_preload([PRELOADED])
    return made
