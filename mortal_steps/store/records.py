"""Records of a run directory: one value of a known type per file."""

import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Literal, TypeVar

from mortal_steps.errors import CorruptFileError, StoreError
from mortal_steps.store import json_record
from mortal_steps.store.files import write_atomically
from mortal_steps.store.seal import check_seal
from mortal_steps.types import FileRef, GeneratedShard, RewardedShard
from mortal_steps.types.references import check_below

logger = logging.getLogger(__name__)

T = TypeVar("T")

COLUMNS = ".parquet"
"""The suffix of records that are stored as columns."""

Content = Literal["generations", "rewards"]

KINDS: dict[Content, type[GeneratedShard] | type[RewardedShard]] = {
    "generations": GeneratedShard,
    "rewards": RewardedShard,
}


class RecordStore:
    """Atomic, verified reads and writes of records below one directory."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def path(self, relative: str) -> Path:
        """Return where something in the run directory is, or the directory itself for an empty
        name. Raises `CorruptFileError` for a name that leads out of it: what names files may come
        from another machine."""
        if relative:
            try:
                check_below(relative)
            except ValueError as error:
                raise CorruptFileError(f"{self.root}: {error}") from None
        return self.root / relative

    def write_record(self, relative: str, body: T, kind: type[T]) -> FileRef:
        """Commit `body` under `relative`; an existing file is replaced."""
        content: bytes | bytearray
        if relative.endswith(COLUMNS):
            # Imported where columns are: the flow's process writes and reads none.
            from mortal_steps.store.shard_columns import pack

            digest, content = pack(self.path(relative), body, kind)
        else:
            digest, content = json_record.pack(body, kind)
        write_atomically(self.path(relative), content)
        return FileRef(path=relative, sha256=digest)

    def read_record(self, ref: FileRef, kind: type[T]) -> T:
        """Return the referenced value; raises `CorruptFileError` if it is another."""
        found, body = self._load(ref.path, kind)
        _check_digest(self.path(ref.path), found.sha256, ref.sha256)
        return body

    def find_record(self, relative: str, kind: type[T]) -> tuple[FileRef, T] | None:
        """Return a committed record, if any; raises `CorruptFileError`, `NewerFormatError`."""
        if not self.path(relative).exists():
            return None
        return self._load(relative, kind)

    def find_whole(self, relative: str, kind: type[T], otherwise: str) -> tuple[FileRef, T] | None:
        """As `find_record`, but a damaged record is none; what happens `otherwise` is logged."""
        try:
            return self.find_record(relative, kind)
        except CorruptFileError as error:
            logger.warning("%s: %s", otherwise, error)
            return None

    def check_record(self, ref: FileRef) -> None:
        """Raise `CorruptFileError` unless the file is, byte for byte, what `ref` stands for."""
        path, content = self.path(ref.path), self._content(ref.path)
        if ref.path.endswith(COLUMNS):
            found = check_seal(path, content)
        else:
            found, _ = json_record.check(path, content)
        _check_digest(path, found, ref.sha256)

    def _load(self, relative: str, kind: type[T]) -> tuple[FileRef, T]:
        path, content = self.path(relative), self._content(relative)
        if relative.endswith(COLUMNS):
            from mortal_steps.store.shard_columns import unpack

            digest = check_seal(path, content)
            return FileRef(path=relative, sha256=digest), unpack(path, content, kind)
        digest, payload = json_record.check(path, content)
        return FileRef(path=relative, sha256=digest), json_record.unpack(path, payload, kind)

    def _content(self, relative: str) -> bytes:
        path = self.path(relative)
        try:
            return path.read_bytes()
        except FileNotFoundError:
            raise CorruptFileError(f"{path} is missing") from None
        except OSError as error:
            raise StoreError(f"{path} cannot be read: {error.strerror}") from error


def _check_digest(path: Path, found: str, expected: str) -> None:
    if found != expected:
        raise CorruptFileError(
            f"{path} holds {found[:12]}, expected {expected[:12]}; "
            "it was replaced after it was committed"
        )


def shard_file(folder: str, content: Content, shard: int) -> str:
    """Return the path of a shard's file in a folder of steps/ or evaluations/."""
    return f"{folder}/{content}-{shard}{COLUMNS}"


def harness_file(folder: str, name: str) -> str:
    """Return the path of what a harness answered in an evaluation."""
    return f"{folder}/harness-{name}.json"


def harness_files(folder: Path) -> list[Path]:
    """Return every file in a folder that holds what a harness answered, by name."""
    return sorted(folder.glob("harness-*.json"))


def shard_files(folder: Path) -> Iterator[tuple[Path, Content]]:
    """Yield every file in a folder that holds a shard, in the order of their names."""
    for content in KINDS:
        for path in sorted(folder.glob(f"{content}-*{COLUMNS}")):
            yield path, content


def step_file(stage: str, step: int, shard: int = 0) -> str:
    """Return the path of what `get_batch`, `generate`, `reward` or `train_step` commits; for
    `get_batch`, `shard` is the round."""
    folder = f"steps/{step:06d}"
    files = {
        "get_batch": f"{folder}/batch-{shard}.json" if shard else f"{folder}/batch.json",
        "generate": shard_file(folder, "generations", shard),
        "reward": shard_file(folder, "rewards", shard),
        "train_step": f"{folder}/result.json",
    }
    return files[stage]
