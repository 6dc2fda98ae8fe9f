"""A file that is hashed while it is written, from the same bytes in memory."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Self

from blake3 import blake3

from mortal_steps.store.digests import BLAKE3

BUFFER_BYTES = 1 << 20
ALONE_BYTES = 1 << 18
"""Smaller pieces are hashed by the writing thread; handing them to another thread would take
longer."""


class HashingFile:
    """To be written from one thread. Pieces are hashed beside writing, by a thread of their own;
    `write` returns when both are done, so that the piece may change afterwards."""

    def __init__(self, path: Path) -> None:
        self._file = path.open("wb", buffering=BUFFER_BYTES)
        self._blake3 = blake3()
        self._threads = ThreadPoolExecutor(1, thread_name_prefix="hash")
        self.num_bytes = 0

    def write(self, piece: bytes | memoryview) -> int:
        """Append a piece; raises `OSError`."""
        size = memoryview(piece).nbytes
        if size < ALONE_BYTES:
            self._blake3.update(piece)
            self._file.write(piece)
        else:
            hashing = self._threads.submit(self._blake3.update, piece)
            try:
                self._file.write(piece)
            finally:
                hashing.result()
        self.num_bytes += size
        return size

    def flush(self) -> None:
        """Hand everything to the operating system; raises `OSError`."""
        self._file.flush()

    @property
    def digest(self) -> str:
        """`blake3:<hex>` of what was written."""
        return BLAKE3 + self._blake3.hexdigest()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self._threads.shutdown()
        self._file.close()
