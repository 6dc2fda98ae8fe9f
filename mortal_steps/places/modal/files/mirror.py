"""Files of a run on their way between this run directory and the one on the Volume.

Containers work in the one on the Volume. Folders (weights, checkpoints) stay there. Records travel
with calls: small ones in the request and the result (messages.py); large ones of a request
go up before it, and those of a result come down after it.

Beside the calls, what tells where the run stands (identity, manifest, logs) goes up every few
seconds where it has changed, so that another machine can go on with the run.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator
from typing import Any

from mortal_steps.data.problem_files import PROBLEMS
from mortal_steps.errors import CorruptFileError, LeaseLostError, MortalError
from mortal_steps.places.modal.files.volume import RunsVolume
from mortal_steps.places.modal.messages import (
    LEASES,
    CallResult,
    file_refs,
    has_record,
    load_records,
    write_records,
)
from mortal_steps.policy.starting_model.base_model import RECORD_FILE as BASE_MODEL_FILE
from mortal_steps.policy.starting_model.base_model import StartingModel, model_cache
from mortal_steps.report.trackers import FOLDER as TRACKING
from mortal_steps.rewards.source_history import SOURCES_FILE
from mortal_steps.rollout.episodes.base import CHAT_FILE
from mortal_steps.runs.costs import COSTS
from mortal_steps.runs.ending import FILE as ENDING
from mortal_steps.runs.logs import LOGS
from mortal_steps.runs.manifest import MANIFEST_FILE, RunManifest
from mortal_steps.runs.notices import NOTICES
from mortal_steps.store import FOLDER_MANIFEST, RunStore, listed_files
from mortal_steps.store.identity import CONFIG_FILE, IDENTITY_FILE
from mortal_steps.store.records import harness_files, shard_files
from mortal_steps.system.faults import as_mortal_error
from mortal_steps.types import FileRef, FinalModel

logger = logging.getLogger(__name__)

KEEP_UP_S = 15.0
"""Between two uploads beside the calls. A machine that takes over a run from one that was lost goes
through the steps of so many seconds again, which the actor answers from the Volume."""

IDENTITY = (CONFIG_FILE, *PROBLEMS, IDENTITY_FILE)
PROGRESS = (
    *(MANIFEST_FILE, SOURCES_FILE, *LOGS, NOTICES, COSTS, CHAT_FILE),
    *(ENDING, "reward_curve.png", "report.html"),
)
"""The manifest is read before the logs, which only grow: they hold at least what it vouches for."""

EVALUATIONS = "evaluations"

NOT_SHARED = {"lock", "lease.json", "calls", "logs", TRACKING, LEASES}
"""What is about processes of one machine, or of one Volume."""


class Mirror:
    """One run's way to the Volume and back."""

    def __init__(self, volume: RunsVolume, store: RunStore) -> None:
        self._volume = volume
        self._store = store
        self._uploading = asyncio.Lock()
        self._uploaded: dict[str, object] = {}
        """What the Volume is known to hold: digest, or size and time, of a file by its path."""
        self._due: dict[str, object] = {}
        """Records that the Volume lacks, for the next upload; like `_uploaded`."""
        self._failed: MortalError | None = None
        """Why the last upload beside the calls failed."""

    async def begin(self) -> None:
        """Let the Volume hold the run, whole if it has steps already."""
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

    @contextlib.asynccontextmanager
    async def keeping_up(self) -> AsyncIterator[None]:
        """Upload where the run stands every `KEEP_UP_S` seconds of the block."""
        keeping_up = asyncio.create_task(self._keep_up())
        try:
            yield
        finally:
            keeping_up.cancel()
            await asyncio.wait([keeping_up])
            if not keeping_up.cancelled():
                keeping_up.result()

    def take_along(self, answer: Any) -> None:
        """Let the Volume get the records that a worker of this machine answered with."""
        self._due |= self._records(answer)

    async def load(self, request: Any) -> dict[FileRef, bytes]:
        """Return what is to travel with a request: the records that `request` refers to, where the
        Volume is not known to hold them. What there is no room for is uploaded now.

        A record that is not here is left out: whoever made it did so on the Volume. Raises what has
        kept the Volume from hearing where the run stands.
        """
        failed, self._failed = self._failed, None
        if failed is not None:
            raise failed
        needed = [ref for ref in file_refs(request) if self._uploaded.get(ref.path) != ref.sha256]
        loaded = await asyncio.to_thread(load_records, self._store, needed)
        too_large = [ref for ref in needed if ref not in loaded]
        if any(self._store.path(ref.path).exists() for ref in too_large):
            await self.push(too_large)
        return loaded

    async def push(self, request: Any = None) -> None:
        """Upload the records that `request` names and the Volume lacks, and the run's progress."""
        async with self._uploading:
            due = {path: m for path, m in self._due.items() if self._store.path(path).exists()}
            wanted = {**due, **self._records(request), **self._standing()}
            news = {path: mark for path, mark in wanted.items() if self._uploaded.get(path) != mark}
            if news:
                files = {path: self._store.path(path) for path in news}
                content = {  # problems never change, and may be many
                    path: file if path in PROBLEMS else file.read_bytes()
                    for path, file in files.items()
                }
                await self._volume.upload({self._remote(path): content[path] for path in content})
                self._uploaded |= news
            self._due = {path: mark for path, mark in self._due.items() if path not in wanted}

    async def pull(self, request: Any, result: CallResult) -> None:
        """Bring the records of the answer to `request`, or the finished model, here. Raises
        `CorruptFileError` for a file that is not what the answer says."""
        answer = result.value
        if isinstance(answer, FinalModel):
            for path, sha256 in answer.folders():
                await pull_folder(self._volume, self._store, path, sha256)
        await asyncio.to_thread(write_records, self._store, result.files)
        for ref in file_refs(answer):
            if not has_record(self._store, ref):
                content = await self._volume.read(self._remote(ref.path))
                write_records(self._store, {ref: content})
        for ref in file_refs([request, answer]):  # the call has committed them
            self._uploaded[ref.path] = ref.sha256

    async def _keep_up(self) -> None:
        while True:
            await asyncio.sleep(KEEP_UP_S)
            try:
                await self.push()
            except LeaseLostError:
                return  # the next call hears of it as well
            except Exception as error:  # noqa: BLE001 - the next call raises it, whatever it is
                logger.warning("the run's progress is not uploaded to the Volume: %s", error)
                self._failed = as_mortal_error(error)

    async def _find_unshared(self) -> None:
        """Find what a kill may have kept from going up, and no request of this flow may refer to:
        scores of evaluations, and what there is of steps that are not done."""
        done = _steps_done(self._store)
        for number, folder in self._store.numbered("steps"):
            if number >= done:
                files = [folder / "batch.json", *(path for path, _ in shard_files(folder))]
                names = [str(path.relative_to(self._store.root)) for path in files if path.exists()]
                self._due |= dict.fromkeys(names, "")
        there = set(await self._volume.files(self._remote(EVALUATIONS)))
        root = self._store.root
        folders = list(root.glob(f"{EVALUATIONS}/*"))
        files = [path for folder in folders for path, _ in shard_files(folder)]
        files += [path for folder in folders for path in harness_files(folder)]
        names = [str(path.relative_to(root)) for path in files]
        self._due |= {name: "" for name in names if self._remote(name) not in there}

    def _records(self, request: Any) -> dict[str, object]:
        refs = file_refs(request)
        return {ref.path: ref.sha256 for ref in refs if self._store.path(ref.path).exists()}

    def _standing(self) -> dict[str, object]:
        paths = {name: self._store.path(name) for name in (*IDENTITY, *PROGRESS)}
        found = {name: path.stat() for name, path in paths.items() if path.exists()}
        return {name: (stat.st_size, stat.st_mtime_ns) for name, stat in found.items()}

    def _remote(self, path: str) -> str:
        return f"{self._store.root.name}/{path}"


def _steps_done(store: RunStore) -> int:
    """0 where the manifest does not tell."""
    try:
        found = store.find_record(MANIFEST_FILE, RunManifest)
    except CorruptFileError:
        found = None
    return found[1].step if found else 0


async def pull_folder(volume: RunsVolume, store: RunStore, path: str, sha256: str) -> None:
    """Download a folder; raises `CorruptFileError` if it is not the one of this digest."""
    there = f"{store.root.name}/{path}"
    manifest = await volume.read(f"{there}/{FOLDER_MANIFEST}")
    with store.committing_folder(path) as folder:
        for name in listed_files(manifest, there):
            await volume.download(f"{there}/{name}", folder / name)
    store.verify_folder(path, sha256)
