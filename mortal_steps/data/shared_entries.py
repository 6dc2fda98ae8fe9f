"""Locks for runs that share a dataset, and the removal of datasets that no run uses any more.

An entry is a folder of `runs/.data`. A run holds the entry's lock, shared with other runs, from
when it looks for the entry until it has a file of its own, which is usually a link to the entry's.
A run that writes or removes an entry holds the lock alone.
"""

from __future__ import annotations

import contextlib
import fcntl
import logging
import os
import re
import weakref
from collections.abc import Callable
from pathlib import Path

from mortal_steps.errors import StoreError
from mortal_steps.store import RunStore
from mortal_steps.store.files import lock_file, writing

logger = logging.getLogger(__name__)

TRAIN = "train.parquet"
"""The file of an entry to which runs link."""
_KEY = re.compile(r"\.?([0-9a-f]{64})(\..+)?")
"""An entry's folder; with a dot, its lock and what a kill has left of it."""


class EntryLock:
    """The lock of one entry; it is released with this object."""

    def __init__(self, cache: RunStore, key: str) -> None:
        self._path = cache.path(f".{key}.lock")
        self._release: Callable[[], object] = _nothing

    def share(self) -> None:
        """Take the lock together with others; wait while somebody holds it alone."""
        self._take(fcntl.LOCK_SH)

    def be_alone(self) -> None:
        """Take the lock alone; wait until nobody else has it. A shared lock is released first."""
        self._take(fcntl.LOCK_EX)

    def try_alone(self) -> bool:
        """Take the lock alone if nobody else has it; returns whether that worked."""
        return self._take(fcntl.LOCK_EX | fcntl.LOCK_NB)

    def release(self) -> None:
        """Release the lock."""
        self._release()

    def _take(self, how: int) -> bool:
        self._release()
        while True:
            with writing(self._path):
                self._path.parent.mkdir(parents=True, exist_ok=True)
                descriptor = os.open(self._path, os.O_RDWR | os.O_CREAT, 0o666)
            release = weakref.finalize(self, os.close, descriptor)
            try:
                taken = lock_file(descriptor, how, self._path)
            except BaseException:
                release()
                raise
            if not taken:
                release()
                return False
            if os.fstat(descriptor).st_nlink:
                self._release = release
                return True
            release()  # who had it before has removed it


def _nothing() -> None:
    """Nothing is held."""


def remove_unused(cache: RunStore) -> None:
    """Remove each entry that no run links to, begins with or writes."""
    if not cache.root.is_dir():
        return
    matches = [_KEY.fullmatch(path.name) for path in cache.root.iterdir()]
    for key in {match[1] for match in matches if match}:
        try:
            _remove_unless_used(cache, key)
        except (OSError, StoreError) as error:  # another user's, or gone; no reason not to begin
            logger.warning("%s is not cleaned up: %s", cache.path(key), error)


def _remove_unless_used(cache: RunStore, key: str) -> None:
    lock = EntryLock(cache, key)
    if not lock.try_alone():
        return
    try:
        if _num_links(cache.path(key) / TRAIN) < 2:
            cache.remove_folder(key)
            cache.remove_leftovers("", of=key)
            cache.path(f".{key}.lock").unlink()
    finally:
        lock.release()


def _num_links(path: Path) -> int:
    with contextlib.suppress(FileNotFoundError):
        return path.stat().st_nlink
    return 0
