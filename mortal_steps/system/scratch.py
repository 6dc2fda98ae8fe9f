"""A folder for the temporary files of one worker, which is removed with the worker.

The owner removes the folder when the worker has ended, and the worker's supervisor does so when the
owner has (`Child`). If all are killed at once, whoever makes the next such folder removes this one.
A folder is in use for as long as its owner or its worker holds the lock on it.
"""

import contextlib
import fcntl
import os
import shutil
import tempfile
import weakref
from pathlib import Path

PREFIX = "mortal-worker-"


class Scratch:
    """A new folder below `parent` (default: that of temporary files), named with `prefix`. Without
    locks on folders, one that a kill left behind stays."""

    def __init__(self, parent: Path | None = None, prefix: str = PREFIX) -> None:
        parent = parent or Path(tempfile.gettempdir())
        _remove_left_behind(parent, prefix)
        while True:
            self.path = Path(tempfile.mkdtemp(prefix=prefix, dir=parent))
            try:
                self._lock = os.open(self.path, os.O_RDONLY)
            except FileNotFoundError:
                continue  # somebody took it for left behind before it was locked
            with contextlib.suppress(OSError):
                fcntl.flock(self._lock, fcntl.LOCK_EX)
            if os.fstat(self._lock).st_nlink:
                break
            os.close(self._lock)  # as above, but while it waited for the lock
        self._removing = weakref.finalize(self, _remove, self.path, self._lock, os.getpid())

    def fileno(self) -> int:
        """Descriptor of the lock, which the worker inherits."""
        return self._lock

    def environment(self) -> dict[str, str]:
        """Environment variables that tell the worker of its folder."""
        return {"TMPDIR": str(self.path)}

    def remove(self) -> None:
        """Remove the folder after the worker has ended. The end of this process does so, too."""
        self._removing()


def _remove(path: Path, lock: int, owner: int) -> None:
    if os.getpid() != owner:  # a fork of it ends
        return
    shutil.rmtree(path, ignore_errors=True)  # what else may write there is dying, too
    os.close(lock)


def _remove_left_behind(parent: Path, prefix: str) -> None:
    for folder in parent.glob(f"{prefix}????????"):
        try:
            lock = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
        except OSError:
            continue  # gone meanwhile, or another user's
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(folder, ignore_errors=True)
        except OSError:
            pass  # in use, or nobody can tell
        finally:
            os.close(lock)
