"""Files of a run on their way between this run directory and the one on the Volume.

Containers work in the one on the Volume. Folders (weights, checkpoints) stay there. Records travel
with calls: what a request refers to goes up before it, what an answer refers to comes down after
it. With every upload goes what tells where the run stands (identity, manifest, logs), where that
has changed, so that another machine can go on with the run.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import fields, is_dataclass
from typing import Any

from mortal_steps.compute.modal.fence import FOLDER as LEASES
from mortal_steps.compute.modal.volume import RunsVolume
from mortal_steps.data.kept import PROBLEMS
from mortal_steps.errors import CorruptFileError
from mortal_steps.policy.base_model import RECORD_FILE as BASE_MODEL_FILE
from mortal_steps.policy.base_model import StartingModel, model_cache
from mortal_steps.report.trackers import FOLDER as TRACKING
from mortal_steps.rewards.source_history import SOURCES_FILE
from mortal_steps.runs.activity import ACTIVITY_FILE
from mortal_steps.runs.costs import COSTS
from mortal_steps.runs.logs import LOGS
from mortal_steps.runs.manifest import MANIFEST_FILE
from mortal_steps.runs.notices import NOTICES
from mortal_steps.store import FOLDER_MANIFEST, RunStore, listed_files
from mortal_steps.store.files import write_atomically
from mortal_steps.store.identity import CONFIG_FILE, IDENTITY_FILE
from mortal_steps.store.shard_files import shard_files
from mortal_steps.types import FileRef, FinalModel

IDENTITY = (CONFIG_FILE, *PROBLEMS, IDENTITY_FILE)
PROGRESS = (
    *(MANIFEST_FILE, SOURCES_FILE, *LOGS, NOTICES, COSTS),
    *("reward_curve.png", "report.html"),
)
"""The manifest is read before the logs, which only grow: they hold at least what it vouches for."""

EVALUATIONS = "evaluations"

NOT_SHARED = {"lock", "lease.json", ACTIVITY_FILE, "calls", "logs", TRACKING, LEASES}
"""What is about processes of one machine, or of one Volume."""


class Mirror:
    """One run's way to the Volume and back."""

    def __init__(self, volume: RunsVolume, store: RunStore) -> None:
        self._volume = volume
        self._store = store
        self._uploading = asyncio.Lock()
        self._there: dict[str, object] = {}
        """What the Volume is known to hold: digest, or size and time, of a file by its path."""
        self._due: dict[str, object] = {}
        """Records made here that the next upload takes along, like `_there`."""

    async def begin(self) -> None:
        """Let the Volume hold the run: one that has steps already, of a fork or of a time without
        Modal, goes there whole."""
        if await self._volume.find(self._remote(IDENTITY_FILE)) is not None:
            await self._find_unshared()
            return
        root = self._store.root
        files = {str(path.relative_to(root)): path for path in root.rglob("*") if path.is_file()}
        shared = {n: path for n, path in files.items() if n.split("/")[0] not in NOT_SHARED}
        cache = model_cache(root.parent)
        found = self._store.find_record(BASE_MODEL_FILE, StartingModel)
        made = (cache / found[1].key).rglob("*") if found is not None else ()
        models = {str(path.relative_to(cache.parent)): path for path in made if path.is_file()}
        await self._volume.upload(models | {self._remote(n): path for n, path in shared.items()})

    def take_along(self, answer: Any) -> None:
        """Let the next upload take the records that a worker of this machine answered with."""
        self._due |= self._records(answer)

    async def push(self, request: Any = None) -> None:
        """Upload the records that `request` refers to, and where the run stands, if it changed.

        A record that is not here is left out: whoever made it did so on the Volume.
        """
        async with self._uploading:
            due = {path: m for path, m in self._due.items() if self._store.path(path).exists()}
            wanted = {**due, **self._records(request), **self._standing()}
            news = {path: mark for path, mark in wanted.items() if self._there.get(path) != mark}
            if news:
                files = {path: self._store.path(path) for path in news}
                content = {  # problems never change, and may be many
                    path: file if path in PROBLEMS else file.read_bytes()
                    for path, file in files.items()
                }
                await self._volume.upload({self._remote(path): content[path] for path in content})
                self._there |= news
            self._due = {path: mark for path, mark in self._due.items() if path not in wanted}

    async def pull(self, answer: Any) -> None:
        """Download the records that `answer` refers to, or the finished model.

        Raises `CorruptFileError` for a file that is not what the answer says.
        """
        if isinstance(answer, FinalModel):
            for path, sha256 in answer.folders():
                await pull_folder(self._volume, self._store, path, sha256)
        for ref in file_refs(answer):
            if not self._has(ref):
                content = await self._volume.read(self._remote(ref.path))
                write_atomically(self._store.path(ref.path), content)
                self._store.check_record(ref)
            self._there[ref.path] = ref.sha256

    async def _find_unshared(self) -> None:
        """No request refers to scores of an evaluation: a kill may have kept them from going up."""
        there = set(await self._volume.files(self._remote(EVALUATIONS)))
        root = self._store.root
        folders = root.glob(f"{EVALUATIONS}/*")
        files = [path for folder in folders for path, _ in shard_files(folder)]
        names = [str(path.relative_to(root)) for path in files]
        self._due |= {name: "" for name in names if self._remote(name) not in there}

    def _has(self, ref: FileRef) -> bool:
        try:
            self._store.check_record(ref)
        except CorruptFileError:
            return False
        return True

    def _records(self, request: Any) -> dict[str, object]:
        refs = file_refs(request)
        return {ref.path: ref.sha256 for ref in refs if self._store.path(ref.path).exists()}

    def _standing(self) -> dict[str, object]:
        paths = {name: self._store.path(name) for name in (*IDENTITY, *PROGRESS)}
        found = {name: path.stat() for name, path in paths.items() if path.exists()}
        return {name: (stat.st_size, stat.st_mtime_ns) for name, stat in found.items()}

    def _remote(self, path: str) -> str:
        return f"{self._store.root.name}/{path}"


async def pull_folder(volume: RunsVolume, store: RunStore, path: str, sha256: str) -> None:
    """Bring a folder of the run here; raises `CorruptFileError` if it is not the one of this
    digest."""
    there = f"{store.root.name}/{path}"
    manifest = await volume.read(f"{there}/{FOLDER_MANIFEST}")
    with store.committing_folder(path) as folder:
        for name in listed_files(manifest, there):
            await volume.download(f"{there}/{name}", folder / name)
    store.verify_folder(path, sha256)


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
