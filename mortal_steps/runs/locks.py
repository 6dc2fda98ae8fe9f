"""The two file locks of a run directory: one on the directory itself, one on a file in it.

The lock file can be deleted while the run stays; the directory cannot. But network file systems
only lock files that are open for writing, and no directory is. There, the file alone is locked.
"""

from __future__ import annotations

import errno
import fcntl
import os

from mortal_steps.store import RunStore
from mortal_steps.store.files import lock_file, writing

LOCK_FILE = "lock"
CANNOT_LOCK_FOLDERS = {errno.EBADF, errno.EINVAL, errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP}
"""What file systems say that lock no folders."""


class Locks:
    """The file locks of a run directory, which are held after `take`."""

    def __init__(self, store: RunStore) -> None:
        self._path = store.path(LOCK_FILE)
        with writing(self._path):
            store.root.mkdir(parents=True, exist_ok=True)
            self._directory = os.open(store.root, os.O_RDONLY)
            try:
                self._file = os.open(self._path, os.O_RDWR | os.O_CREAT, 0o644)
            except BaseException:
                os.close(self._directory)
                raise
        self.descriptors = (self._directory, self._file)

    def take(self) -> bool:
        """Take all of them. Returns False if somebody else holds one. Raises `StoreError` if the
        file system has no locks."""
        try:
            fcntl.flock(self._directory, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        except OSError as error:
            if error.errno not in CANNOT_LOCK_FOLDERS:
                raise
        return lock_file(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB, self._path)

    def are_of(self, store: RunStore) -> bool:
        """Whether the directory is still the one that was opened: it may have been moved away."""
        try:
            return os.path.samestat(os.fstat(self._directory), store.root.stat())
        except FileNotFoundError:
            return False

    def close(self) -> None:
        """Release them. A worker that has inherited them still holds them."""
        for descriptor in self.descriptors:
            os.close(descriptor)
