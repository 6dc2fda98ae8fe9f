"""Digests of the files in committed folders: `blake3:<hex>`, the algorithm by its name.

A plain hexadecimal number is sha256, by which a model is known outside of its run; either is
compared by its own algorithm. BLAKE3 takes a quarter of sha256's time and can use several cores.
"""

from __future__ import annotations

import hashlib
import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Self

from blake3 import blake3

from mortal_steps.errors import CorruptFileError

BLAKE3 = "blake3:"
PIECE_BYTES = 2 << 20
MOST_THREADS = 8
LARGE_BYTES = 64 << 20
"""Files of this size or more are hashed by several threads."""


def digest_of_file(path: Path) -> str:
    """`blake3:<hex>` of a file."""
    with path.open("rb", buffering=0) as file:
        size = os.fstat(file.fileno()).st_size
        hasher = blake3(max_threads=num_threads(size))
        # Read and not mapped: a file that is cut short meanwhile would end the process.
        piece = memoryview(bytearray(min(PIECE_BYTES, max(size, 1))))
        while count := file.readinto(piece):
            hasher.update(piece[:count])
    return BLAKE3 + hasher.hexdigest()


def digest_like(path: Path, listed: str) -> str:
    """Digest of a file by the algorithm of the `listed` one.

    Raises `CorruptFileError` where that is none that this version knows.
    """
    if listed.startswith(BLAKE3):
        return digest_of_file(path)
    if ":" in listed:
        raise CorruptFileError(
            f"{path} is listed with the digest {listed[:20]}, whose algorithm this version of "
            "MORTAL does not know; continue with the one that wrote it"
        )
    with path.open("rb") as opened:
        return hashlib.file_digest(opened, "sha256").hexdigest()


def num_threads(num_bytes: int) -> int:
    """The number of threads that hash so many bytes. Each hasher has its own threads, since threads
    do not survive a fork."""
    return min(len(os.sched_getaffinity(0)), MOST_THREADS) if num_bytes >= LARGE_BYTES else 1


BUFFER_BYTES = 1 << 20
ALONE_BYTES = 1 << 18
"""Smaller pieces are hashed by the writing thread; handing them to another thread would take
longer."""


class HashingFile:
    """A file that is hashed while it is written, from the same bytes in memory.

    To be written from one thread. Pieces are hashed beside writing, by a thread of their own;
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
