"""Files that processes of one machine share in memory: segments, which are files in /dev/shm.

A writer keeps a segment and puts one folder's files into it after the other, since touching memory
for the first time takes ten times as long as copying into it.

    0         MAGIC, and the length of the head in 8 bytes
    16        the head, JSON: {"stamp", "payload": [name, length], "files": {name: base64}}
    START     the payload: the one file that is large

Nobody reads what is being written: the writer takes the file's lock alone for that time, and
readers share it. Whoever comes too late finds another stamp, or no file. A writer holds the shared
lock for as long as it lives, which tells segments in use from those that a kill has left. They
outlive their writer, so that what it announced can be read until there is a new one.
"""

from __future__ import annotations

import base64
import contextlib
import fcntl
import hashlib
import json
import mmap
import os
import re
import shutil
import time
import uuid
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from mortal_steps.errors import ConfigError, CorruptFileError
from mortal_steps.store.files import failed_write, is_disk_error
from mortal_steps.store.mapped_segments import MappedSegments
from mortal_steps.types import SegmentRef

SHARED_MEMORY = Path("/dev/shm")
MAGIC = b"MORTAL1\n"
START = 4 << 20
ABANDONED_S = 3600.0
"""Seconds since the last writing after which a segment whose writer is gone counts as abandoned."""
REMEDY = "or choose another rollout.weight_sync, such as 'reload'"


@dataclass(frozen=True, kw_only=True)
class Shared:
    """The content of a segment, for as long as it is open."""

    files: Mapping[str, bytes]
    """The small files, by name."""
    payload_name: str
    payload: memoryview
    """Content of the large one: memory of the segment itself. Whoever writes to it changes a copy
    of its own."""


class Segment:
    """One segment, as its writer sees it.

    Raises `ConfigError` if there is no shared memory, and `DiskError` if there is not enough.
    """

    def __init__(self, run: Path, payload_size: int) -> None:
        """For a payload of up to so many bytes, of the run in that directory."""
        check_shared_memory(START + payload_size)
        path = SHARED_MEMORY / f"{prefix_of(run)}{os.getpid()}-{uuid.uuid4().hex[:8]}"
        self.name, self.capacity, self._path = path.name, payload_size, path
        self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
        try:
            fcntl.flock(self._file, fcntl.LOCK_SH)
            os.posix_fallocate(self._file, 0, START + payload_size)
            self._memory = mmap.mmap(self._file, START + payload_size)
        except OSError as error:
            self.remove()
            if is_disk_error(error):
                raise failed_write(path, error) from error
            raise

    def try_to_lock(self) -> bool:
        """Whether nobody is reading the segment. If so, it is locked until `seal`, and its content
        is discarded."""
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            fcntl.flock(self._file, fcntl.LOCK_SH)  # trying has lost that one, too
            return False
        self._memory[: len(MAGIC)] = bytes(len(MAGIC))
        return True

    def payload(self, size: int) -> memoryview:
        """Memory for a payload of so many bytes, to write to once it is locked."""
        return memoryview(self._memory)[START : START + size]

    def seal(self, files: Mapping[str, bytes], payload: tuple[str, int]) -> SegmentRef:
        """Let readers read these files and the payload, which is given by its name and size."""
        stamp = uuid.uuid4().hex
        coded = {name: base64.b64encode(content).decode() for name, content in files.items()}
        head = json.dumps({"stamp": stamp, "payload": payload, "files": coded}).encode()
        if 16 + len(head) > START:
            raise ConfigError(
                f"rollout.weight_sync = 'direct' has room for {START:,} bytes beside the weights, "
                f"and {', '.join(files)} take {len(head):,}; choose another rollout.weight_sync, "
                "such as 'reload'"
            )
        self._memory[16 : 16 + len(head)] = head
        self._memory[8:16] = len(head).to_bytes(8, "little")
        self._memory[: len(MAGIC)] = MAGIC
        os.utime(self._file)
        fcntl.flock(self._file, fcntl.LOCK_SH)
        return SegmentRef(name=self.name, stamp=stamp)

    def remove(self) -> None:
        """Remove the segment; its memory is freed once nobody has it open."""
        self._path.unlink(missing_ok=True)
        os.close(self._file)


@contextlib.contextmanager
def opened(reference: SegmentRef, mapped: MappedSegments | None = None) -> Iterator[Shared | None]:
    """What a segment holds, or None where that is gone; nobody writes to it inside the block. A
    reader that comes again has its mappings in `mapped`.

    Raises `CorruptFileError` for a segment whose head is damaged.
    """
    if not re.fullmatch(r"mortal-[0-9a-f]+-[0-9]+-[0-9a-f]+", reference.name):
        raise CorruptFileError(f"{reference.name!r} is no name of a segment")
    path = SHARED_MEMORY / reference.name
    try:
        file = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except FileNotFoundError:
        yield None
        return
    try:
        fcntl.flock(file, fcntl.LOCK_SH)
        memory = (mapped or MappedSegments()).map(path, file)
        yield _read(path, memory, reference.stamp)
    finally:
        fcntl.flock(file, fcntl.LOCK_UN)  # the mapping may live longer, and would hold the lock
        os.close(file)


def _read(path: Path, memory: mmap.mmap, stamp: str) -> Shared | None:
    if memory[: len(MAGIC)] != MAGIC:
        return None  # its writer was killed while it wrote
    try:
        head = json.loads(memory[16 : 16 + int.from_bytes(memory[8:16], "little")])
        if head["stamp"] != stamp:
            return None
        name, size = head["payload"]
        files = {other: base64.b64decode(coded) for other, coded in head["files"].items()}
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        # Not by its repr, which has all of the head where that is no text any more.
        raise damaged_segment(path, f"its head is unreadable ({error})") from None
    if START + size > len(memory):
        raise damaged_segment(path, f"it ends before its {size:,} bytes do")
    content = memoryview(memory)[START : START + size]
    return Shared(files=files, payload_name=name, payload=content)


def damaged_segment(origin: Path | str, why: str) -> CorruptFileError:
    """The error for memory that does not hold what was put there."""
    return CorruptFileError(
        f"{origin} is damaged: {why}. Continue with `mortal resume`, which reads the weights from "
        "their folder or makes them again"
    )


def prefix_of(run: Path) -> str:
    """The prefix of the names of all segments of the run in that directory."""
    return f"mortal-{hashlib.sha256(str(run.resolve()).encode()).hexdigest()[:12]}-"


def remove_segments(run: Path, *, but: Collection[str] = ()) -> None:
    """Remove all segments of the run, except those with these names."""
    for path in _own(f"{prefix_of(run)}*"):
        if path.name not in but:
            path.unlink(missing_ok=True)


def abandoned_segments() -> list[Path]:
    """Segments of any run whose writer ended more than an hour ago and was not replaced."""
    return [path for path in _own("mortal-*-*-*") if _is_abandoned(path)]


def check_shared_memory(needed: int = 0) -> None:
    """Raise `ConfigError` unless this machine has shared memory with so many free bytes."""
    if not os.access(SHARED_MEMORY, os.W_OK):
        raise ConfigError(
            f"rollout.weight_sync = 'direct' needs shared memory, and {SHARED_MEMORY} is not there "
            f"or not writable; mount a tmpfs there, {REMEDY}"
        )
    free = shutil.disk_usage(SHARED_MEMORY).free
    if free < needed:
        raise ConfigError(
            f"rollout.weight_sync = 'direct' needs {needed:,} bytes in {SHARED_MEMORY}, which has "
            f"{free:,} free. Enlarge it (docker run --shm-size, or mount -o remount,size=...), "
            f"{REMEDY}"
        )


def _own(pattern: str) -> Iterator[Path]:
    for path in SHARED_MEMORY.glob(pattern):
        with contextlib.suppress(FileNotFoundError):
            if path.lstat().st_uid == os.getuid():
                yield path


def _is_abandoned(path: Path) -> bool:
    try:
        file = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except FileNotFoundError:
        return False
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return time.time() - os.fstat(file).st_mtime > ABANDONED_S
    except BlockingIOError:
        return False
    finally:
        os.close(file)
