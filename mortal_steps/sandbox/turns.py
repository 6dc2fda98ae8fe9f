"""Turns of lanes: where several processes have lanes, only one lane of each number runs a program.

So all of them together run no more programs than one would, and one that is alone runs as many. A
turn is a lock on a file, which the kernel gives back when its holder ends, however that comes.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
from collections.abc import Callable, Iterator
from pathlib import Path

from mortal_steps.store.files import writing

Turn = Callable[[int], contextlib.AbstractContextManager[None]]
"""Of the lane with this number."""

_held: set[int] = set()
"""Descriptors of this process's turns."""


def no_turn(number: int) -> contextlib.AbstractContextManager[None]:
    """For lanes that are shared with nobody."""
    return contextlib.nullcontext()


@contextlib.contextmanager
def turn_in(folder: Path, number: int) -> Iterator[None]:
    """Wait for the turn of a lane, and hold it. Raises `StoreError` where its file cannot be made,
    which is nobody's score and no failure of a reward function."""
    file = folder / str(number)
    with writing(file):
        folder.mkdir(exist_ok=True)
        descriptor = os.open(file, os.O_RDWR | os.O_CREAT, 0o644)
    _held.add(descriptor)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        _held.discard(descriptor)
        os.close(descriptor)


def _leave_to_the_parent() -> None:
    """A forked process would hold turns for as long as it lives."""
    for descriptor in _held:
        os.close(descriptor)
    _held.clear()


os.register_at_fork(after_in_child=_leave_to_the_parent)
