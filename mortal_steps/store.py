"""The run directory: the truth about a run.

    runs/<run_id>/
      config.toml          the resolved configuration
      run.json             identity: id, fingerprint, working directory, when it began
      manifest.json        where the run stands: status, step, checkpoints, evaluation, final model
      data/                the problems, as read at the start (train.json, eval.json)
      model/               the model built or warm-started for this run, if any
      steps/000012/        batch.json, generations-<shard>.json, rewards-<shard>.json, journal.json,
                           result.json
      weights/v12/         published weights, immutable
      checkpoints/step-12/ whole states of the actor
      final/               the trained model, a plain `from_pretrained` folder
      metrics.jsonl timings.jsonl reward_curve.png logs/

Everything is written beside its place, synced to disk, then renamed, so a partial file is never
taken for a whole one. A *record* is a JSON file of two lines, its sha256 and its body; a *folder*
carries a `manifest.json` with the sha256 of each of its files. Reading verifies both.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import json
import os
import shutil
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar

from pydantic import TypeAdapter, ValidationError

from mortal_steps.errors import CorruptFileError, StoreError
from mortal_steps.types import FileRef

T = TypeVar("T")

FOLDER_MANIFEST = "manifest.json"


class RunStore:
    """Atomic, verified reads and writes below one run directory."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def path(self, relative: str) -> Path:
        """Absolute path of something in the run directory."""
        return self.root / relative

    # records: one JSON value of a known type per file

    def write_record(self, relative: str, body: T, kind: type[T]) -> FileRef:
        """Commit `body` under `relative`; an existing file is replaced."""
        payload = _adapter(kind).dump_json(body)
        digest = hashlib.sha256(payload).hexdigest()
        content = b"%s\n%s\n" % (json.dumps({"sha256": digest}).encode(), payload)
        write_atomically(self.path(relative), content)
        return FileRef(path=relative, sha256=digest)

    def read_record(self, ref: FileRef, kind: type[T]) -> T:
        """The value that `ref` stands for; raises `CorruptFileError` if it is not exactly that."""
        found, body = self._load(ref.path, kind)
        _check_digest(self.path(ref.path), found.sha256, ref.sha256)
        return body

    def find_record(self, relative: str, kind: type[T]) -> tuple[FileRef, T] | None:
        """A record committed earlier, or None; raises `CorruptFileError` if it is damaged."""
        if not self.path(relative).exists():
            return None
        return self._load(relative, kind)

    def check_record(self, ref: FileRef) -> None:
        """Raise `CorruptFileError` unless the file is, byte for byte, what `ref` stands for."""
        found, _ = self._read(ref.path)
        _check_digest(self.path(ref.path), found, ref.sha256)

    def _load(self, relative: str, kind: type[T]) -> tuple[FileRef, T]:
        digest, payload = self._read(relative)
        try:
            body: T = _adapter(kind).validate_json(payload)
        except ValidationError as error:
            name = getattr(kind, "__name__", kind)
            raise CorruptFileError(f"{self.path(relative)} is no {name}: {error}") from None
        return FileRef(path=relative, sha256=digest), body

    def _read(self, relative: str) -> tuple[str, bytes]:
        """Digest and body of a record whose digest is right; raises `CorruptFileError`."""
        path = self.path(relative)
        try:
            content = path.read_bytes()
        except FileNotFoundError:
            raise CorruptFileError(f"{path} is missing") from None
        head, _, payload = content.removesuffix(b"\n").partition(b"\n")
        digest = hashlib.sha256(payload).hexdigest()
        try:
            recorded = json.loads(head)["sha256"]
        except (ValueError, KeyError, TypeError):
            raise CorruptFileError(f"{path} is damaged: its first line is no digest") from None
        if digest != recorded or not content.endswith(b"\n"):
            raise CorruptFileError(
                f"{path} is damaged: its content hashes to {digest[:12]}, recorded {recorded[:12]}"
            )
        return digest, payload

    # folders: many files that exist together or not at all

    @contextlib.contextmanager
    def committing_folder(self, relative: str) -> Iterator[Path]:
        """Yields an empty folder to fill; on success it appears as `relative`, whole.

        A folder of that name is replaced. On an error nothing is left behind.
        """
        target = self.path(relative)
        beside = target.parent / f".{target.name}.{uuid.uuid4().hex[:8]}.partial"
        beside.mkdir(parents=True)
        try:
            yield beside
            digests = {name: digest_file(beside / name) for name in _files_below(beside)}
            manifest = json.dumps({"files": digests}, indent=1, sort_keys=True).encode()
            write_atomically(beside / FOLDER_MANIFEST, manifest)
            for name in digests:
                _sync(beside / name)
            for folder in {(beside / name).parent for name in digests}:
                _sync(folder)
            _replace_folder(beside, target)
        except BaseException:
            shutil.rmtree(beside, ignore_errors=True)
            raise

    def folder_digest(self, relative: str) -> str:
        """sha256 of a committed folder's manifest; raises `CorruptFileError` if there is none."""
        try:
            return hashlib.sha256((self.path(relative) / FOLDER_MANIFEST).read_bytes()).hexdigest()
        except FileNotFoundError:
            raise CorruptFileError(f"{self.path(relative)} is missing or incomplete") from None

    def verify_folder(self, relative: str, sha256: str) -> Path:
        """The folder's path once every file in it matches; raises `CorruptFileError`."""
        folder = self.path(relative)
        if self.folder_digest(relative) != sha256:
            raise CorruptFileError(f"{folder / FOLDER_MANIFEST} is not the one expected: altered")
        files = json.loads((folder / FOLDER_MANIFEST).read_bytes())["files"]
        for name, digest in files.items():
            if not (folder / name).exists():
                raise CorruptFileError(f"{folder / name} is missing")
            if digest_file(folder / name) != digest:
                raise CorruptFileError(f"{folder / name} is damaged: its digest does not match")
        return folder

    def remove_folder(self, relative: str) -> None:
        """Delete a committed folder; it stops existing at once, whatever the deletion takes."""
        target = self.path(relative)
        if target.exists():
            doomed = target.parent / f".{target.name}.{uuid.uuid4().hex[:8]}.removed"
            target.rename(doomed)
            shutil.rmtree(doomed)

    def remove_leftovers(self, relative: str) -> None:
        """Delete the hidden files and folders that killed commits and deletions left in `relative`.

        Only for the one process that commits there.
        """
        for leftover in self.path(relative).glob(".*"):
            if leftover.suffix not in {".partial", ".removed", ".replaced"}:
                continue
            if leftover.is_dir():
                shutil.rmtree(leftover)
            else:
                leftover.unlink(missing_ok=True)


def write_atomically(path: Path, content: bytes) -> None:
    """Write beside, sync, rename: readers see the old content or the new, never a part."""
    path.parent.mkdir(parents=True, exist_ok=True)
    beside = path.parent / f".{path.name}.{uuid.uuid4().hex[:8]}.partial"
    try:
        with beside.open("wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        beside.rename(path)
    except OSError as error:
        beside.unlink(missing_ok=True)
        raise StoreError(f"cannot write {path}: {error.strerror or error}") from error
    _sync(path.parent)


def write_json(path: Path, value: Any) -> None:
    """Replace a small JSON file atomically."""
    write_atomically(path, json.dumps(value, indent=1).encode() + b"\n")


def append_line(path: Path, value: Any) -> None:
    """Append one JSON line to a log such as metrics.jsonl."""
    with path.open("a", encoding="utf-8") as file:
        file.write(json.dumps(value) + "\n")


def read_lines(path: Path, keep: Callable[[dict[str, Any]], bool] | None = None) -> list[Any]:
    """The JSON lines of a log; a last line cut short by a crash is left out."""
    if not path.exists():
        return []
    whole, _, _ = path.read_text(encoding="utf-8").rpartition("\n")
    rows = [json.loads(line) for line in whole.splitlines() if line]
    return rows if keep is None else [row for row in rows if keep(row)]


def digest_file(path: Path) -> str:
    """sha256 of a file, hexadecimal."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


_adapters: dict[Any, TypeAdapter[Any]] = {}


def _adapter(kind: type[T]) -> TypeAdapter[T]:
    """Kept: building one takes milliseconds, and a step reads and writes a dozen records."""
    if kind not in _adapters:
        _adapters[kind] = TypeAdapter(kind)
    return _adapters[kind]


def _check_digest(path: Path, found: str, expected: str) -> None:
    if found != expected:
        raise CorruptFileError(
            f"{path} holds {found[:12]}, expected {expected[:12]}; "
            "it was replaced after it was committed"
        )


def _files_below(folder: Path) -> list[str]:
    return sorted(str(p.relative_to(folder)) for p in folder.rglob("*") if p.is_file())


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _replace_folder(source: Path, target: Path) -> None:
    try:
        source.rename(target)
    except OSError as error:
        if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
            raise
        doomed = target.parent / f".{target.name}.{uuid.uuid4().hex[:8]}.replaced"
        target.rename(doomed)
        source.rename(target)
        shutil.rmtree(doomed)
    _sync(target.parent)
