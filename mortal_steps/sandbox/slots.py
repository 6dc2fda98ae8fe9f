"""Slots of lanes: of all the lanes with the same number in several processes, one runs a program.

All processes together therefore run no more programs at a time than one would alone, and a process
that is alone can use all of its lanes. A slot is a lock on a file. The kernel releases the lock
when its holder ends, in whatever way that happens.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
from collections.abc import Callable, Iterator
from pathlib import Path

from mortal_steps.store.files import writing

Slot = Callable[[int], contextlib.AbstractContextManager[None]]
"""Takes the number of a lane and returns a context manager that holds the lane's slot."""

_held: set[int] = set()
"""Descriptors of the locks that this process holds."""


def no_slot(number: int) -> contextlib.AbstractContextManager[None]:
    """A slot that is free at once, for lanes that no other process shares."""
    return contextlib.nullcontext()


@contextlib.contextmanager
def slot_in(folder: Path, number: int) -> Iterator[None]:
    """Wait for the slot of a lane, then hold it.

    Raises `StoreError` if the lock file in `folder` cannot be made. That is neither a score nor a
    failure of a reward function.
    """
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
    """Close the locks in a forked process, which would otherwise hold them for its whole life."""
    for descriptor in _held:
        os.close(descriptor)
    _held.clear()


os.register_at_fork(after_in_child=_leave_to_the_parent)
