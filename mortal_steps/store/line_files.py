"""Records that are appended one by one, a JSON line each, and count as soon as they are written.

    judge/20261122T132501483112-4711-3fa2c19b.jsonl   {"question": "9f2c", ..., "check": "1a2b..."}

Each process writes a file of its own into the folder, and reads those of all. `check` is the
beginning of the sha256 of the rest: a line that a kill has cut short, or that was altered, does not
count.
"""

import hashlib
import json
import os
import threading
import time
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Generic, TypeVar

from mortal_steps.store.files import sync_to_disk, writing
from mortal_steps.store.json_record import adapter

T = TypeVar("T")


class LineFiles(Generic[T]):
    """Records of one kind in a folder; with `sync`, `add` waits for the disk. For threads."""

    def __init__(self, folder: Path, kind: type[T], *, sync: bool = False) -> None:
        self._folder = folder
        self._kind = kind
        self._sync = sync
        self._read: dict[Path, int] = {}
        """Bytes of each file that are read."""
        self._descriptor: int | None = None
        self._writing = threading.Lock()

    def new(self) -> Iterator[tuple[str, T]]:
        """Yield new whole records with their file's name, the oldest file's first."""
        for path in sorted(self._folder.glob("*.jsonl")):
            with path.open("rb") as file:
                file.seek(self._read.get(path, 0))
                content = file.read()
            whole = content[: content.rfind(b"\n") + 1]
            self._read[path] = self._read.get(path, 0) + len(whole)
            for line in whole.splitlines():
                record = self._record(line)
                if record is not None:
                    yield path.name, record

    def begin(self) -> None:
        """Begin this process's file, which its forks share. Raises `StoreError`."""
        with self._writing, writing(self._folder):
            self._begun()

    def add(self, *records: T) -> None:
        """Append records; raises `StoreError` if they cannot be written."""
        lines = b"".join(map(self._line, records))
        with self._writing, writing(self._folder):
            descriptor = self._begun()
            if os.write(descriptor, lines) < len(lines):
                self._close()  # behind the part, the next line would be unreadable
                raise OSError(f"only a part of {len(lines)} bytes was written")
            if self._sync:
                os.fsync(descriptor)

    def close(self) -> None:
        with self._writing:
            self._close()

    def _begun(self) -> int:
        if self._descriptor is None:
            self._folder.mkdir(parents=True, exist_ok=True)
            now = time.time()
            when = time.strftime("%Y%m%dT%H%M%S", time.gmtime(now))
            part = f"{int(now % 1 * 1e6):06d}"
            path = self._folder / f"{when}{part}-{os.getpid()}-{uuid.uuid4().hex[:8]}.jsonl"
            self._descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644)
            if self._sync:
                sync_to_disk(self._folder)
        return self._descriptor

    def _close(self) -> None:
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None

    def _line(self, record: T) -> bytes:
        fields = adapter(self._kind).dump_python(record, mode="json")
        return json.dumps({**fields, "check": _check(fields)}).encode() + b"\n"

    def _record(self, line: bytes) -> T | None:
        try:
            fields = json.loads(line)
            check = fields.pop("check")
            record = adapter(self._kind).validate_python(fields, strict=False)
        except (ValueError, KeyError, TypeError, AttributeError):
            return None
        return record if check == _check(fields) else None


def _check(fields: Any) -> str:
    content = json.dumps(fields, sort_keys=True).encode()
    return hashlib.sha256(content).hexdigest()[:16]
