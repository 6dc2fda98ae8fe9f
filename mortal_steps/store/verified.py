"""Which committed files this process has hashed already, and how they looked then."""

from __future__ import annotations

import time
from pathlib import Path

YOUNG_NS = 50_000_000
"""A file may change twice within a tick of the file system's clock, and keep its time."""

_Look = tuple[int, int, int]
"""Inode, bytes, time of the last change in ns."""


class VerifiedFiles:
    """Kept by a store. What changes a file's content changes its look, and it is hashed again."""

    def __init__(self) -> None:
        self._looks: dict[Path, tuple[str, _Look]] = {}

    def look(self, path: Path) -> _Look | None:
        """How a file looks now, to be noted once it is hashed; None if it is too young for that."""
        found = path.stat()
        if time.time_ns() - found.st_mtime_ns < YOUNG_NS:
            return None
        return found.st_ino, found.st_size, found.st_mtime_ns

    def note(self, path: Path, digest: str, look: _Look | None) -> None:
        """The file had this digest when it looked like that."""
        if look is not None:
            self._looks[path] = digest, look

    def is_known(self, path: Path, digest: str) -> bool:
        """Whether the file was found to have this digest and looks as it did then."""
        noted = self._looks.get(path)
        return noted is not None and noted == (digest, self.look(path))

    def forget(self, folder: Path) -> None:
        """Drop the files below a folder, which is deleted."""
        for path in [path for path in list(self._looks) if folder in path.parents]:
            self._looks.pop(path, None)
