"""Temporary files: a folder of a process's own, which goes with the process.

Its owner removes the folder when the worker has ended, and the worker when its owner has. What is
left where both are killed at once, the next one removes that makes such a folder: a lock that owner
and worker hold tells which folders are in use.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import tempfile
import weakref
from collections.abc import Mapping
from pathlib import Path

PREFIX = "mortal-worker-"
VARIABLE = "MORTAL_WORKER_SCRATCH"


class Scratch:
    """A new folder below `parent`, or below the folder of temporary files, whose name begins with
    `prefix`.

    File systems that lock no folders keep what a kill leaves there.
    """

    def __init__(self, parent: Path | None = None, prefix: str = PREFIX) -> None:
        parent = parent or Path(tempfile.gettempdir())
        _remove_left_behind(parent, prefix)
        while True:
            self.path = Path(tempfile.mkdtemp(prefix=prefix, dir=parent))
            self._lock = os.open(self.path, os.O_RDONLY)
            with contextlib.suppress(OSError):
                fcntl.flock(self._lock, fcntl.LOCK_EX)
            if os.fstat(self._lock).st_nlink:
                break
            os.close(self._lock)  # somebody took it for left behind before it was locked
        self._removing = weakref.finalize(self, _remove, self.path, self._lock)

    def fileno(self) -> int:
        """Descriptor of the lock, for the worker to inherit."""
        return self._lock

    def environment(self) -> dict[str, str]:
        """Of the worker."""
        return {"TMPDIR": str(self.path), VARIABLE: str(self.path)}

    def remove(self) -> None:
        """Remove the folder, unless that is done: the worker has ended. The end of this process
        does it, too."""
        self._removing()


def _remove(path: Path, lock: int) -> None:
    shutil.rmtree(path, ignore_errors=True)  # what else may write there is dying, too
    os.close(lock)


def remove_own_scratch(environment: Mapping[str, str | None] = os.environ) -> None:
    """In a worker, or for one with this environment: remove its folder; its owner has ended."""
    path = environment.get(VARIABLE)
    if path:
        shutil.rmtree(path, ignore_errors=True)


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
