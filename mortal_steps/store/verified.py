"""Remembers which committed files this process has hashed already, and their size and times
then."""

from __future__ import annotations

import time
from pathlib import Path

YOUNG_NS = 50_000_000
"""Nanoseconds. A file may change twice within a tick of the file system's clock without a new
time."""

_Look = tuple[int, int, int]
"""Inode, size in bytes, and time of the last change in ns."""


class VerifiedFiles:
    """The memory of one store. A file whose inode, size or time has changed is hashed again."""

    def __init__(self) -> None:
        self._looks: dict[Path, tuple[str, _Look]] = {}

    def look(self, path: Path) -> _Look | None:
        """What a file looks like now, to be noted once it is hashed; None if it was changed too
        recently."""
        found = path.stat()
        if time.time_ns() - found.st_mtime_ns < YOUNG_NS:
            return None
        return found.st_ino, found.st_size, found.st_mtime_ns

    def note(self, path: Path, digest: str, look: _Look | None) -> None:
        """Note that the file had this digest when it looked like that."""
        if look is not None:
            self._looks[path] = digest, look

    def is_known(self, path: Path, digest: str) -> bool:
        """Whether the file was found to have this digest and still looks as it did then."""
        noted = self._looks.get(path)
        return noted is not None and noted == (digest, self.look(path))

    def forget(self, folder: Path) -> None:
        """Forget the files below a folder that is deleted."""
        for path in [path for path in list(self._looks) if folder in path.parents]:
            self._looks.pop(path, None)
