"""Files of a run on their way between this run directory and the Volume.

The Volume holds the run directory that the containers work in. Folders (weights, checkpoints)
stay there. Records travel by the references in calls: what a request refers to goes up before it,
what an answer refers to comes down after it. With every upload goes what tells where the run stands
(identity, manifest, logs), where it has changed, so that another machine can go on with the run.
"""

from __future__ import annotations

import asyncio
import io
import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import fields, is_dataclass
from typing import Any

import modal

from mortal_steps.errors import CorruptFileError
from mortal_steps.files import write_atomically
from mortal_steps.identity import CONFIG_FILE, EVAL_PROBLEMS, IDENTITY_FILE, TRAIN_PROBLEMS
from mortal_steps.logs import LOGS
from mortal_steps.manifest import MANIFEST_FILE
from mortal_steps.store import FOLDER_MANIFEST, RunStore
from mortal_steps.types import FileRef, FinalModel

STANDING = (
    CONFIG_FILE,
    TRAIN_PROBLEMS,
    EVAL_PROBLEMS,
    IDENTITY_FILE,
    MANIFEST_FILE,
    *LOGS,
    "reward_curve.png",
)
"""What tells where a run stands. The manifest is read before the logs, which only grow, so that
they hold at least what it vouches for."""


class Mirror:
    """One run's way to the Volume and back."""

    def __init__(self, volume: modal.Volume, store: RunStore) -> None:
        self._volume = volume
        self._store = store
        self._uploading = asyncio.Lock()
        self._there: dict[str, object] = {}
        """What the Volume is known to hold: digest or size and time of a file, by path."""

    async def push(self, request: Any = None) -> None:
        """Upload the records that `request` refers to, and where the run stands, if it changed."""
        async with self._uploading:
            wanted = {ref.path: ref.sha256 for ref in file_refs(request)} | self._standing()
            news = {path: mark for path, mark in wanted.items() if self._there.get(path) != mark}
            if not news:
                return
            async with self._volume.batch_upload.aio(force=True) as batch:
                for path in news:
                    content = self._store.path(path).read_bytes()
                    batch.put_file(io.BytesIO(content), self._remote(path))
            self._there |= news

    async def pull(self, answer: Any) -> None:
        """Download the records that `answer` refers to, or the finished model.

        Raises `CorruptFileError` for a file that is not what the answer says.
        """
        if isinstance(answer, FinalModel):
            for path, sha256 in answer.folders():
                await self._pull_folder(path, sha256)
        for ref in file_refs(answer):
            if not self._has(ref):
                write_atomically(self._store.path(ref.path), await self._read(ref.path))
                self._store.check_record(ref)
            self._there[ref.path] = ref.sha256

    async def _pull_folder(self, path: str, sha256: str) -> None:
        files = json.loads(await self._read(f"{path}/{FOLDER_MANIFEST}"))["files"]
        with self._store.committing_folder(path) as folder:
            for name in files:
                target = folder / name
                target.parent.mkdir(parents=True, exist_ok=True)
                with target.open("wb") as file:
                    remote = self._remote(f"{path}/{name}")
                    await self._volume.read_file_into_fileobj.aio(remote, file)
        self._store.verify_folder(path, sha256)

    async def _read(self, path: str) -> bytes:
        blocks = [block async for block in self._volume.read_file.aio(self._remote(path))]
        return b"".join(blocks)

    def _has(self, ref: FileRef) -> bool:
        try:
            self._store.check_record(ref)
        except CorruptFileError:
            return False
        return True

    def _standing(self) -> dict[str, object]:
        paths = [(name, self._store.path(name)) for name in STANDING]
        found = [(name, path.stat()) for name, path in paths if path.exists()]
        return {name: (stat.st_size, stat.st_mtime_ns) for name, stat in found}

    def _remote(self, path: str) -> str:
        return f"{self._store.root.name}/{path}"


def file_refs(value: Any) -> Iterator[FileRef]:
    """Every `FileRef` in a request or an answer."""
    if isinstance(value, FileRef):
        yield value
    elif is_dataclass(value):
        yield from file_refs([getattr(value, field.name) for field in fields(value)])
    elif isinstance(value, Mapping):
        yield from file_refs(value.values())
    elif isinstance(value, Iterable) and not isinstance(value, str):
        for item in value:
            yield from file_refs(item)
