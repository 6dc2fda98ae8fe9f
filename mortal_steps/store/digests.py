"""Digests of the files in committed folders: `blake3:<hex>`.

BLAKE3 takes a quarter of sha256's time and can use several cores. A plain hexadecimal number
elsewhere is a sha256, by which a model is known outside of its run.
"""

import os
from pathlib import Path

from blake3 import blake3

from mortal_steps.errors import CorruptFileError

BLAKE3 = "blake3:"
PIECE_BYTES = 2 << 20
MOST_THREADS = 8
LARGE_BYTES = 64 << 20
"""Files of this size or more are hashed by several threads."""


def digest_of_file(path: Path) -> str:
    """Return `blake3:<hex>` of a file."""
    with path.open("rb", buffering=0) as file:
        size = os.fstat(file.fileno()).st_size
        hasher = blake3(max_threads=num_threads(size))
        # Read and not mapped: a file that is cut short meanwhile would end the process.
        piece = memoryview(bytearray(min(PIECE_BYTES, max(size, 1))))
        while count := file.readinto(piece):
            hasher.update(piece[:count])
    return BLAKE3 + hasher.hexdigest()


def has_digest(path: Path, listed: str) -> bool:
    """Return whether it is the file with this digest. Raises `CorruptFileError` for an algorithm
    that this version does not know."""
    if not listed.startswith(BLAKE3):
        raise CorruptFileError(
            f"{path} is listed with the digest {listed[:20]}, whose algorithm this version of "
            "MORTAL does not know; continue with the one that wrote it"
        )
    return digest_of_file(path) == listed


def num_threads(num_bytes: int) -> int:
    """Return how many threads hash so many bytes."""
    return min(len(os.sched_getaffinity(0)), MOST_THREADS) if num_bytes >= LARGE_BYTES else 1
