"""What a reader keeps of segments from one version to the next: its mappings of them.

To touch a mapping for the first time takes as long as to copy what lies there. A writer puts one
version after the other into the same few segments, so that a mapping is of use for more than one.

A private mapping that nobody writes to shows what the writer puts there later (Linux); where it did
not, the digest of what was read would tell.
"""

from __future__ import annotations

import mmap
import os
from pathlib import Path


class MappedSegments:
    """The mappings of one reader."""

    def __init__(self) -> None:
        self._kept: dict[Path, tuple[int, mmap.mmap]] = {}

    def map(self, path: Path, file: int) -> mmap.mmap:
        """The segment at `path`, open as `file`; the caller holds its lock."""
        self.drop_removed()
        found = os.fstat(file)
        inode, memory = self._kept.get(path, (0, None))
        if memory is None or (inode, len(memory)) != (found.st_ino, found.st_size):
            memory = mmap.mmap(file, 0, access=mmap.ACCESS_COPY)
            self._kept[path] = found.st_ino, memory
        return memory

    def drop_removed(self) -> None:
        """Free the memory of segments that were removed."""
        for path in [path for path in self._kept if not path.exists()]:
            del self._kept[path]
