"""Runs whose directory is on a Volume, as a machine that does not mount it sees them.

A run that another machine drove last stands further there than here. `download_run` takes over what
the flow needs of it; checkpoints and weights stay there, where the containers are.
"""

from __future__ import annotations

import logging
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import modal

from mortal_steps.config import ModalConfig
from mortal_steps.errors import CorruptFileError, RunNotFoundError, StoreError
from mortal_steps.places.modal.deployed import ask_about, check_volume
from mortal_steps.places.modal.files.mirror import IDENTITY, NOT_SHARED, PROGRESS, pull_folder
from mortal_steps.places.modal.files.volume import RunsVolume
from mortal_steps.places.modal.files.volume_lease import find_lease
from mortal_steps.places.modal.messages import file_refs, has_record, write_records
from mortal_steps.places.modal.retry import call_with_retries
from mortal_steps.policy.journal import find_entry
from mortal_steps.policy.starting_model import base_model
from mortal_steps.runs.costs import COSTS, merge_costs
from mortal_steps.runs.lease import RECORD_FILE, LeaseRecord
from mortal_steps.runs.manifest import MANIFEST_FILE, RunManifest
from mortal_steps.runs.run import Run, find_run
from mortal_steps.store import RunStore
from mortal_steps.store.files import write_atomically
from mortal_steps.store.identity import CONFIG_FILE, IDENTITY_FILE, read_identity
from mortal_steps.types import FinalModel
from mortal_steps.types.identity import RunInfo

logger = logging.getLogger(__name__)


async def download_run(volume: RunsVolume, store: RunStore) -> bool:
    """Let the run directory here stand where the one on the Volume does, if that is further; one
    that has ended gets its final model.

    A kill in the middle of it leaves a directory that stands no further than before. Returns
    whether the Volume has the run. Raises `StoreError` if that is another run of this id, and
    `CorruptFileError` for damage there.
    """
    with tempfile.TemporaryDirectory() as folder:
        there = RunStore(Path(folder) / store.root.name)
        await _download(volume, there, [IDENTITY_FILE, MANIFEST_FILE])
        info, stands = read_identity(there), _standing(there)
        if info is None:
            return False
        _check_same(store, info)
        if _standing(store) < stands:
            logs = [name for name in PROGRESS[1:] if name != COSTS]
            await _download(volume, there, [*IDENTITY[:-1], *logs])
            await _download_steps(volume, there, stands[0])
            _take_over(there, store)
    await _merge_costs(volume, store)
    await _fetch_finished(volume, store)
    return True


async def download_batches(volume: RunsVolume, store: RunStore) -> None:
    """Let steps that the actor has begun to take have the batches here that they have there.
    Another machine may have driven the run, scored them otherwise, and been lost before the Volume
    heard how far it was: a step is taken once. For the one process that drives the run."""
    run_id, first = store.root.name, _standing(store)[0]
    with tempfile.TemporaryDirectory() as folder:
        there = RunStore(Path(folder) / run_id)
        for name in await volume.folders(f"{run_id}/steps"):
            if not name.isdecimal() or int(name) < first:
                continue
            await _download(volume, there, [f"steps/{name}/journal.json"])
            try:
                entry = find_entry(there, int(name))
                refs = [ref for ref in file_refs(entry) if not has_record(store, ref)]
                content = {ref: await volume.read(f"{run_id}/{ref.path}") for ref in refs}
                write_records(store, content)
            except CorruptFileError as error:
                logger.warning("step %s is not as the Volume has it: %s", name, error)


async def list_run_ids(volume: RunsVolume) -> list[str]:
    """Ids of the runs on the Volume, and whatever else lies there."""
    return [name for name in await volume.folders("/") if not name.startswith(".")]


async def look_at(
    volume: RunsVolume, run_id: str, folder: Path, progress: Iterable[str] = PROGRESS
) -> Run:
    """Return a copy, in `folder`, of what tells where a run on the Volume stands, or the parts of
    `PROGRESS` asked for. Raises `RunNotFoundError`."""
    store = RunStore(folder / run_id)
    await _download(volume, store, [CONFIG_FILE, IDENTITY_FILE, *progress])
    info = read_identity(store)
    if info is None:
        raise await _not_found(volume, run_id)
    holder = await find_lease(volume, run_id)
    if holder is not None:
        store.write_record(RECORD_FILE, holder, LeaseRecord)
    return Run(store, None, info)


async def _not_found(volume: RunsVolume, run_id: str) -> RunNotFoundError:
    known = ", ".join(await list_run_ids(volume)) or "none"
    return RunNotFoundError(f"no run {run_id!r} on the Volume {volume.name} (there: {known})")


async def fetch(volume: RunsVolume, run_id: str, runs_dir: Path, *, everything: bool) -> Path:
    """Bring a run's final model and progress here, or all of it; returns the run directory. Raises
    `RunNotFoundError`, and `CorruptFileError` if the model did not arrive whole."""
    store = RunStore(runs_dir / run_id)
    if not await download_run(volume, store):
        raise await _not_found(volume, run_id)
    if everything:
        for path in await volume.files(run_id):
            name = str(Path(path).relative_to(run_id))
            if name not in (*IDENTITY, *PROGRESS) and name.split("/")[0] not in NOT_SHARED:
                await volume.download(path, store.path(name))
        await _fetch_base_model(volume, store)
    if (final := find_run(runs_dir, run_id).manifest.final) is not None:
        await _fetch_final(volume, store, final)
    return store.root


async def _fetch_finished(volume: RunsVolume, store: RunStore) -> None:
    """Fetch the final model of a run that has ended; one that is damaged there is made again."""
    try:
        found = store.find_record(MANIFEST_FILE, RunManifest)
        if found and found[1].status == "completed" and found[1].final is not None:
            await _fetch_final(volume, store, found[1].final)
    except CorruptFileError as error:
        logger.warning("%s", error)


async def _fetch_final(volume: RunsVolume, store: RunStore, final: FinalModel) -> None:
    """Download what is not here, whole, already."""
    for folder, sha256 in final.folders():
        try:
            store.verify_folder(folder, sha256)
        except CorruptFileError:
            await pull_folder(volume, store, folder, sha256)


async def _merge_costs(volume: RunsVolume, store: RunStore) -> None:
    """Both directories may have what the other lacks: each machine notes what it paid for."""
    there = await volume.find(f"{store.root.name}/{COSTS}")
    path = store.path(COSTS)
    here = path.read_bytes() if path.exists() else b""
    merged = merge_costs(there or b"", here)
    if merged != here:
        write_atomically(path, merged)


async def _fetch_base_model(volume: RunsVolume, store: RunStore) -> None:
    """Fetch the model that was made for the run's beginning, which lies beside the runs."""
    found = store.find_record(base_model.RECORD_FILE, base_model.StartingModel)
    if found is not None:
        cache = base_model.model_cache(store.root.parent)
        for path in await volume.files(f"{cache.name}/{found[1].key}"):
            await volume.download(path, RunStore(cache.parent).path(path))


async def verify_remote(volume: RunsVolume, run_id: str) -> Any:
    """`mortal verify` of a run, in a container of its app beside the Volume. Raises
    `RunNotFoundError`, and `ComputeError` if that app has another Volume."""
    with tempfile.TemporaryDirectory() as folder:
        run = await look_at(volume, run_id, Path(folder))
        try:
            app = run.config.compute.modal.app
        except CorruptFileError:  # which the check is about to tell
            app = ModalConfig().app
    options = ModalConfig(app=app, volume=volume.name)
    check_volume(await ask_about(options), options)
    verify = modal.Function.from_name(app, "verify")
    return await call_with_retries(run_id, lambda: verify.remote.aio(run_id))


def _take_over(there: RunStore, store: RunStore) -> None:
    """Copy every file, those last that tell that there is a run, and that it stands there."""
    last = (IDENTITY_FILE, MANIFEST_FILE)
    files = [str(path.relative_to(there.root)) for path in there.root.rglob("*") if path.is_file()]
    for name in [*sorted(set(files) - {*last}), *(name for name in last if name in files)]:
        write_atomically(store.path(name), there.path(name).read_bytes())


def _standing(store: RunStore) -> tuple[int, float]:
    """How far a run is: its step, and when that was noted; a damaged manifest tells neither."""
    try:
        found = store.find_record(MANIFEST_FILE, RunManifest)
    except CorruptFileError as error:
        logger.warning("%s", error)
        found = None
    if found is None:
        return (-1, 0.0) if read_identity(store) is None else (-1, 1.0)
    return found[1].step, found[1].updated_at


def _check_same(store: RunStore, there: RunInfo) -> None:
    here = read_identity(store)
    if here is not None and here.uid != there.uid:
        raise StoreError(
            f"the Volume holds another run {there.run_id!r}, begun in {there.working_dir}; choose "
            f"another --run-id, or remove one of the two (`modal volume rm` and the id)"
        )


async def _download(volume: RunsVolume, store: RunStore, names: Iterable[str]) -> None:
    for name in names:
        content = await volume.find(f"{store.root.name}/{name}")
        if content is not None:
            write_atomically(store.path(name), content)


async def _download_steps(volume: RunsVolume, store: RunStore, first: int) -> None:
    """Download records of unfinished steps, whose scores may not come out the same again."""
    run_id = store.root.name
    for name in await volume.folders(f"{run_id}/steps"):
        if name.isdecimal() and int(name) >= first:
            paths = await volume.files(f"{run_id}/steps/{name}")
            await _download(volume, store, [str(Path(path).relative_to(run_id)) for path in paths])
