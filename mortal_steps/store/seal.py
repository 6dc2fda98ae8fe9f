"""A Parquet file that proves itself: two digests in its footer.

    PAR1 | columns | schema ... {"format": 2, "kind": "GeneratedShard", "sha256": "9f...",
                                 "file_sha256": "04..."} ... | length of the footer | PAR1

`sha256` is of the content, whoever encodes it: references and state ids go by it, so that they stay
what they are with another version of pyarrow. `file_sha256` is of every byte of the file, taken
with zeros in its own place: a file found without a reference is whole or known to be damaged. The
seal is read without pyarrow, and stays as it is in every later format.
"""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass
from pathlib import Path

from mortal_steps.errors import CorruptFileError
from mortal_steps.store.formats import check_format

SEAL_KEY = "mortal"
"""The key in the file's metadata."""
MAGIC = b"PAR1"

_NOT_YET = "0" * 64
_SEAL = re.compile(
    rb'mortal\x18.{1,2}\{"format": (\d{1,9}), "kind": "(\w+)", "sha256": "([0-9a-f]{64})", '
    rb'"file_sha256": "([0-9a-f]{64})"\}',
    re.DOTALL,
)
"""With its key, and what Thrift puts between a key and a value: no JSON can hold that."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Seal:
    """What a file says about itself."""

    format: int
    kind: str
    """Name of the type that it holds."""
    sha256: str
    """Digest of its content."""


def open_seal(seal: Seal) -> str:
    """The text to write under `SEAL_KEY`; `close` completes it."""
    return (
        f'{{"format": {seal.format}, "kind": "{seal.kind}", "sha256": "{seal.sha256}", '
        f'"file_sha256": "{_NOT_YET}"}}'
    )


def close(content: bytearray) -> bytearray:
    """The file's bytes, with their digest put in its place."""
    start, end = _find(content).span(4)
    content[start:end] = hashlib.sha256(content).hexdigest().encode()
    return content


def check_seal(path: Path, content: bytes) -> Seal:
    """What a file says of itself; raises `CorruptFileError` unless it is whole, to the byte, and
    `NewerFormatError`."""
    try:
        found = _find(content)
    except ValueError as error:
        raise CorruptFileError(f"{path} is damaged: {error}") from None
    start, end = found.span(4)
    whole = memoryview(content)
    hashed = hashlib.sha256(whole[:start])
    hashed.update(_NOT_YET.encode())
    hashed.update(whole[end:])
    if hashed.hexdigest().encode() != found[4]:
        raise CorruptFileError(
            f"{path} is damaged: it hashes to {hashed.hexdigest()[:12]}, "
            f"recorded {found[4][:12].decode()}"
        )
    check_format(path, int(found[1]))
    return Seal(format=int(found[1]), kind=found[2].decode(), sha256=found[3].decode())


def _find(content: bytes | bytearray) -> re.Match[bytes]:
    if len(content) < 12 or not content.endswith(MAGIC) or not content.startswith(MAGIC):
        raise ValueError("it is no whole Parquet file")
    start = len(content) - 8 - int.from_bytes(content[-8:-4], "little")
    seals = list(_SEAL.finditer(content, max(start, 0), len(content) - 8))
    if len(seals) != 1:
        raise ValueError(f"it has {len(seals) or 'no'} seal{'s' if seals else ''}")
    return seals[0]
