"""A record in JSON, two lines: the sha256 of its body and the format, then the body.

pydantic writes and reads the body: a dataclass, or a list or mapping of some. What a dataclass does
not know is passed over, since newer code may have written it.
"""

import functools
import hashlib
import json
from pathlib import Path
from typing import Any, TypeVar

from pydantic import TypeAdapter, ValidationError

from mortal_steps.errors import CorruptFileError, NewerFormatError

FORMAT = 1
"""The format of what is written here. It grows when older code could no longer read, or would
misread, what newer code writes; a new field with a default is no new format."""

T = TypeVar("T")


def check_format(path: Path, written_in: int) -> None:
    """Raise `NewerFormatError` for a format that this code does not know."""
    if written_in > FORMAT:
        raise NewerFormatError(
            f"{path} is of format {written_in}, and this version of MORTAL knows none beyond "
            f"{FORMAT}: a newer version wrote it; continue with that one"
        )


def pack(body: T, kind: type[T]) -> tuple[str, bytes]:
    """Return the digest of the body, and the file."""
    payload = adapter(kind).dump_json(body)
    digest = hashlib.sha256(payload).hexdigest()
    head = json.dumps({"sha256": digest, "format": FORMAT})
    return digest, b"%s\n%s\n" % (head.encode(), payload)


def check(path: Path, content: bytes) -> tuple[str, bytes]:
    """Return a whole file's digest and body; raises `CorruptFileError`, `NewerFormatError`."""
    head, _, payload = content.removesuffix(b"\n").partition(b"\n")
    digest = hashlib.sha256(payload).hexdigest()
    try:
        recorded, written_in = _read_head(head)
    except (ValueError, KeyError, TypeError, AttributeError):
        raise CorruptFileError(f"{path} is damaged: its first line is no digest") from None
    check_format(path, written_in)
    if digest != recorded or not content.endswith(b"\n"):
        raise CorruptFileError(
            f"{path} is damaged: its content hashes to {digest[:12]}, recorded {recorded[:12]}"
        )
    return digest, payload


def unpack(path: Path, payload: bytes, kind: type[T]) -> T:
    """Read a body; raises `CorruptFileError` for one of another kind."""
    try:
        return adapter(kind).validate_json(payload)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"]))
        name = getattr(kind, "__name__", kind)
        raise CorruptFileError(f"{path} is no {name}: {where}: {first['msg']}") from None


def adapter(kind: type[T]) -> TypeAdapter[T]:
    """Return pydantic's reader and writer of a type."""
    wanted: Any = kind  # mypy takes no `type[T]` for hashable
    found: TypeAdapter[T] = _adapter(wanted)
    return found


@functools.cache
def _adapter(kind: Any) -> TypeAdapter[Any]:
    """Kept: building one takes milliseconds, and a step writes a dozen records."""
    return TypeAdapter(kind)


def _read_head(head: bytes) -> tuple[str, int]:
    """Return digest and format of the first line; raises if it is damaged."""
    first_line = json.loads(head)
    written_in = first_line["format"]
    if written_in < 1 or (written_in <= FORMAT and first_line.keys() - {"sha256", "format"}):
        raise ValueError("no format has such a line")
    return first_line["sha256"], written_in
