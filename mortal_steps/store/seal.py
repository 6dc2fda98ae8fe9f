"""A Parquet file that proves itself: its footer has the sha256 of the file.

The digest is taken with zeros where it stands in the file. So a file that is found without a
reference is whole or known to be damaged; a reference has the same digest. It is read without
pyarrow.
"""

import hashlib
import re
from pathlib import Path

from mortal_steps.errors import CorruptFileError

SEAL_KEY = "mortal.sha256"
"""The key in the file's metadata, the last that is written."""
UNSEALED = "0" * 64
"""The value of the key until `close`."""
_SEAL = re.compile(rb"mortal\.sha256\x18@([0-9a-f]{64})")
"""With what Thrift puts between a key and a value, which no JSON can contain."""


def close(content: bytearray) -> str:
    """Put the digest of a file into its place; return it."""
    start, end = _find(content)
    digest = hashlib.sha256(content).hexdigest()
    content[start:end] = digest.encode()
    return digest


def check_seal(path: Path, content: bytes) -> str:
    """Return the digest of a file that is whole; raises `CorruptFileError`."""
    try:
        start, end = _find(content)
    except ValueError as error:
        raise CorruptFileError(f"{path} is damaged: {error}") from None
    recorded = content[start:end].decode()
    hashed = hashlib.sha256(content[:start])
    hashed.update(UNSEALED.encode())
    hashed.update(memoryview(content)[end:])
    if hashed.hexdigest() != recorded:
        raise CorruptFileError(
            f"{path} is damaged: it hashes to {hashed.hexdigest()[:12]}, recorded {recorded[:12]}"
        )
    return recorded


def _find(content: bytes | bytearray) -> tuple[int, int]:
    """Return where the digest begins and ends."""
    start = len(content) - 8 - int.from_bytes(content[-8:-4], "little")
    seals = list(_SEAL.finditer(content, max(start, 0)))
    if len(seals) != 1:
        raise ValueError("its footer has no digest")
    return seals[0].span(1)
