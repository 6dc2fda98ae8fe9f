"""Single files: written whole or not at all, digested, and named when they cannot be written."""

import contextlib
import fcntl
import functools
import hashlib
import json
import logging
import os
import shutil
import time
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

from mortal_steps.errors import CorruptFileError, DiskError, StoreError
from mortal_steps.store.digests import has_digest
from mortal_steps.system.disks import FAULTY_DISK, error_number, is_disk_error

logger = logging.getLogger(__name__)


def write_atomically(path: Path, content: bytes | bytearray, *, private: bool = False) -> None:
    """Write under another name, sync, rename: readers never see a part. A `private` file is for its
    owner alone."""
    with writing(path), writing_beside(path) as file:
        if private:
            os.fchmod(file.fileno(), 0o600)
        file.write(content)


def write_output(path: Path, content: bytes) -> None:
    """Write a file that the user has named, whole or not at all: a link stays one, and a device,
    such as `/dev/stdout`, is written to. Raises `StoreError`."""
    if is_written_to(path):
        with writing(path):
            path.write_bytes(content)
    else:
        write_atomically(led_to(path), content)


def is_written_to(path: Path) -> bool:
    """Return whether `write_output` writes to what is there, in place of putting a new file there:
    a device, a pipe, or what such a link as `/dev/stdout` has open."""
    is_open = path.is_symlink() and led_to(path.parent).is_relative_to("/proc")
    is_open |= path.is_symlink() and path.parent == Path("/dev")
    return is_open or (path.exists() and not path.is_file())


def led_to(path: Path) -> Path:
    """Return where links lead, whether anything is there or not; a link still for a circle."""
    return Path(os.path.realpath(path))


def hidden_beside(path: Path, why: str) -> Path:
    """Return an unused hidden name in the same folder; `why` is its suffix."""
    return path.parent / f".{path.name}.{uuid.uuid4().hex[:8]}.{why}"


@contextlib.contextmanager
def writing_beside(path: Path) -> Iterator[IO[bytes]]:
    """Yield a file that takes the place of `path` when the block ends well."""
    partial = hidden_beside(path, "partial")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with partial.open("wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        partial.rename(path)
    except BaseException:
        partial.unlink(missing_ok=True)
        raise
    sync_to_disk(path.parent)


def write_json(path: Path, value: Any) -> None:
    write_atomically(path, json.dumps(value, indent=1).encode() + b"\n")


@contextlib.contextmanager
def writing(path: Path) -> Iterator[None]:
    """Raise `StoreError`, which names the file, for an `OSError` of the block."""
    try:
        yield
    except OSError as error:
        raise failed_write(path, error) from error


def lock_file(file: int | IO[Any], how: int, path: Path) -> bool:
    """Lock the open file `path` by `fcntl.flock`; returns False if that would have to wait and may
    not. Raises `StoreError` on a file system without locks."""
    try:
        fcntl.flock(file, how)
    except BlockingIOError:
        return False
    except OSError as error:
        raise StoreError(
            f"{path} cannot be locked: {error.strerror}. Without file locks, two processes could "
            "write there at once; choose a folder on another file system, or mount this one with "
            "locks (for Lustre, with the option flock)"
        ) from error
    return True


@contextlib.contextmanager
def locked(path: Path, *, waits_for: str = "") -> Iterator[IO[str]]:
    """Hold the lock on the file `path`, made if need be, during the block. After a second, say what
    this `waits_for`. Raises `StoreError`."""
    with _opened_to_lock(path) as file:
        if waits_for and not lock_file(file, fcntl.LOCK_EX | fcntl.LOCK_NB, path):
            time.sleep(1)
            if not lock_file(file, fcntl.LOCK_EX | fcntl.LOCK_NB, path):
                logger.warning("waits for %s, which holds %s", waits_for, path)
        lock_file(file, fcntl.LOCK_EX, path)
        yield file


@contextlib.contextmanager
def locked_at_once(path: Path) -> Iterator[IO[str] | None]:
    """Like `locked`, but enter the block with None if somebody else has the lock."""
    with _opened_to_lock(path) as file:
        yield file if lock_file(file, fcntl.LOCK_EX | fcntl.LOCK_NB, path) else None


def _opened_to_lock(path: Path) -> IO[str]:
    with writing(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        return path.open("a+", encoding="utf-8")


def delete_folder(folder: Path) -> None:
    """Delete a folder that nobody needs any more, also where somebody else is just doing so."""
    while folder.exists():
        with contextlib.suppress(FileNotFoundError):
            shutil.rmtree(folder)


def link_file(source: Path, target: Path) -> None:
    """Let `target` be the same file as `source`, or a copy: what is committed is replaced, never
    changed. Raises `CorruptFileError` without `source`, and `StoreError`."""
    with writing(target):
        target.parent.mkdir(parents=True, exist_ok=True)
        try:
            target.hardlink_to(source)
        except FileNotFoundError:
            raise CorruptFileError(f"{source} is missing") from None
        except OSError:
            shutil.copyfile(source, target)
            sync_to_disk(target)


def link_verified(source: Path, target: Path, digest: str) -> None:
    """Link a committed folder's file. Raises `CorruptFileError` unless it has this digest."""
    link_file(source, target)
    if not has_digest(target, digest):
        raise CorruptFileError(f"{source} is damaged: its digest does not match")


def failed_write(path: Path, error: BaseException) -> StoreError:
    """Return the error for a write or a deletion that failed: it names the file and the remedy."""
    number = error_number(error)
    reason = os.strerror(number) if number is not None else str(error)
    if not is_disk_error(error):
        return StoreError(
            f"cannot write {path}: {reason}; make it writable, then continue with `mortal resume`"
        )
    if number in FAULTY_DISK:
        return DiskError(
            f"cannot write {path}: the disk fails ({reason}). Nothing half-written counts: see to "
            "the disk (`dmesg` may say more), then continue with `mortal resume`"
        )
    existing = next(folder for folder in path.absolute().parents if folder.exists())
    return DiskError(
        f"cannot write {path}: the disk is full or a limit is reached ({error}); "
        f"{shutil.disk_usage(existing).free:,} bytes are free there. Nothing half-written counts: "
        "free space, then continue with `mortal resume`"
    )


def is_write_error(error: BaseException, *folders: Path) -> bool:
    """Return whether the system refused to write to one of the folders, for whatever reason, also
    where a library says so. What it refuses to read elsewhere is another matter."""
    if isinstance(error, (ConnectionError, TimeoutError)):
        return False
    if isinstance(error, OSError) and error.filename is not None and not is_disk_error(error):
        named = [Path(os.fsdecode(name)) for name in (error.filename, error.filename2) if name]
        return any(_are_on_one_path(name, folder) for folder in folders for name in named)
    return error_number(error) is not None


def _are_on_one_path(one: Path, other: Path) -> bool:
    one, other = one.absolute(), other.absolute()
    return one.is_relative_to(other) or other.is_relative_to(one)


def digest_file(path: Path) -> str:
    """Return the sha256 of a file, hexadecimal."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def digest_unless_changed(path: Path) -> str:
    """Return the sha256 of a file; this process reads it again only if it was changed."""
    found = path.stat()
    return _digest_of(path.absolute(), found.st_size, found.st_ctime_ns)


@functools.cache
def _digest_of(path: Path, num_bytes: int, changed_ns: int) -> str:
    return digest_file(path)


def sync_to_disk(path: Path) -> None:
    """Let a file's content, or a folder's names, outlast a power cut."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
