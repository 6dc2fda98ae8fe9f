"""Make whole models, which every engine can load, of what a run directory holds.

    exported/step-12-<digest>/     an adapter in its base, or parameters, or links to weights

`mortal gc` removes those that no command has used for long. A process that uses one holds a shared
lock on its manifest until it ends, and so does the server that it becomes by `exec`.
"""

import contextlib
import fcntl
import logging
import os
import shutil
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import IO

from mortal_steps.errors import CorruptFileError, StoreError
from mortal_steps.policy.model_files.exporting import Export, export_in_process
from mortal_steps.policy.on_disk import weights
from mortal_steps.rollout.weight_sync.canary import PROBE_FILE
from mortal_steps.runs.run import Run
from mortal_steps.serving.bases import base_folder, tokenizer_files
from mortal_steps.serving.models import SavedModel, choose, digest_of, has_gone, trained_model
from mortal_steps.store.files import link_verified, lock_file, locked
from mortal_steps.store.folders import FOLDER_MANIFEST

logger = logging.getLogger(__name__)

EXPORTED = "exported"
COPIED_BYTES = 1 << 24
"""Bytes that are read at a time."""

_used: dict[tuple[int, int], int] = {}
"""Of each manifest that this process has locked, by device and inode, the descriptor."""


def folder_of_trained(run: Run) -> tuple[str, str]:
    """Return the folder of the final model, whole, and its digest; raises as `trained_files`."""
    path = whole_model(run, trained_model(run))
    return str(run.store.path(path).absolute()), run.store.folder_digest(path)


def trained_files(run: Run) -> dict[str, tuple[Path, str]]:
    """Return where each file of the final model is, whole and with its tokenizer, and the digest
    that is listed there, by name. Raises `StoreError` for a run that is not complete, and
    `ModelError` where an adapter's base is not available."""
    path = whole_model(run, trained_model(run))
    listed = run.store.folder_files(path).items()
    return {name: (run.store.path(path) / name, sha) for name, sha in listed if name != PROBE_FILE}


def find_whole(run: Run, step: int | None) -> tuple[SavedModel, str]:
    """Return the model that `choose` does, and the folder of it whole, which stays while the run
    goes on. Raises as `choose` and `whole_model`."""
    while True:
        saved = choose(run, step)
        try:
            return saved, whole_model(run, saved)
        except CorruptFileError:
            if not has_gone(run, saved):
                raise


def whole_model(run: Run, saved: SavedModel) -> str:
    """Return the whole model's folder in the run directory, exported from `saved` if need be; of
    weights that the run may remove, links to them or, where none can be written, themselves. Raises
    `ModelError` if that cannot be, as without an adapter's base."""
    if saved.kind == "model" and not _is_passing(run, saved):
        return saved.path
    path = f"{EXPORTED}/step-{saved.step}-{digest_of(run, saved)[:12]}"
    try:
        if not _is_exported(run, path):
            with locked(run.store.path(f"{EXPORTED}/lock"), waits_for="another command's export"):
                if not _is_exported(run, path):
                    _commit_whole(run, saved, path)
                    _use(run.store.path(path))
    except StoreError as error:
        if saved.kind != "model" or isinstance(error, CorruptFileError):
            raise
        logger.warning(
            "%s is used in place; if the run goes on meanwhile, it may remove it: %s",
            *(run.store.path(saved.path), error),
        )
        return saved.path
    return path


def _is_exported(run: Run, path: str) -> bool:
    # What is in use stays. It is noted first, so that what `mortal gc` takes away is not whole.
    with contextlib.suppress(OSError):  # of a colleague, or not there
        os.utime(run.store.path(path))
    if not _use(run.store.path(path)):
        return False
    try:
        run.store.verify_folder(path, run.store.folder_digest(path))
    except CorruptFileError:
        return False
    return True


def _use(folder: Path) -> bool:
    """Let the folder stay while this process lives, or what it becomes by `exec`. Returns False if
    it is not there, or is just being removed."""
    manifest = folder / FOLDER_MANIFEST
    try:
        found = manifest.stat()
        if (found.st_dev, found.st_ino) in _used:
            return True
        descriptor = os.open(manifest, os.O_RDONLY)
    except FileNotFoundError:
        return False
    with contextlib.suppress(StoreError):  # without locks, `mortal gc` removes nothing
        lock_file(descriptor, fcntl.LOCK_SH, manifest)
    found = os.fstat(descriptor)
    if not manifest.exists() or not os.path.samestat(found, manifest.stat()):
        os.close(descriptor)
        return False
    os.set_inheritable(descriptor, True)
    _used[found.st_dev, found.st_ino] = descriptor
    return True


@contextlib.contextmanager
def unused(folder: Path) -> Iterator[bool]:
    """Enter the block with True if no process uses this whole model; none begins to meanwhile."""
    manifest = folder / FOLDER_MANIFEST
    try:
        file = manifest.open("r+b")
    except OSError:
        file = None
    if file is None:
        yield not manifest.exists()  # what a kill has left, else somebody else's
        return
    with file:
        yield lock_file(file, fcntl.LOCK_EX | fcntl.LOCK_NB, manifest)


def is_used(folder: Path) -> bool:
    """Return whether a process uses this whole model."""
    with unused(folder) as is_unused:
        return not is_unused


def _commit_whole(run: Run, saved: SavedModel, path: str) -> None:
    run.store.remove_leftovers(EXPORTED, of=Path(path).name)
    is_model = saved.kind == "model"
    listed = run.store.folder_files(saved.path) if is_model else {}
    listed.pop(PROBE_FILE, None)
    with run.store.committing_folder(path, hashed=listed) as folder:
        for file, digest in listed.items():
            link_verified(run.store.path(saved.path) / file, folder / file, digest)
        if not is_model:
            write_whole(run, saved, folder)


def _is_passing(run: Run, saved: SavedModel) -> bool:
    """Return whether these are published weights of a run that has not ended, which it removes once
    it samples with others, now or when it is continued."""
    return saved.path.startswith(f"{weights.FOLDER}/") and run.manifest.status != "completed"


def write_whole(run: Run, saved: SavedModel, folder: Path) -> None:
    """Write the whole model and its tokenizer into an empty folder. Raises as `whole_model`."""
    if saved.kind == "model":
        names = [name for name in run.store.folder_files(saved.path) if name != PROBE_FILE]
        copy_files([run.store.path(saved.path) / name for name in names], folder)
    else:
        _export(run, saved, folder)
    copy_files(tokenizer_files(run), folder)


def copy_files(files: Iterable[Path], folder: Path) -> None:
    """Copy the files, except what the folder has already. All are opened before the first is
    copied: what is open can be read to its end, also if a run that goes on removes it meanwhile. So
    a model may have no more files than a process may open, as a rule 1,024. Raises
    `CorruptFileError` for one that is missing."""
    folder.mkdir(parents=True, exist_ok=True)
    with contextlib.ExitStack() as opened:
        sources = [opened.enter_context(_opened(file)) for file in files]
        for source in sources:
            if not (copy := folder / Path(source.name).name).exists():
                with copy.open("wb") as target:
                    shutil.copyfileobj(source, target, COPIED_BYTES)


def _opened(file: Path) -> IO[bytes]:
    try:
        return file.open("rb")
    except FileNotFoundError:
        raise CorruptFileError(f"{file} is missing") from None


def _export(run: Run, saved: SavedModel, folder: Path) -> None:
    adapter, model = saved.kind == "adapter", run.config.model
    export = Export(
        base=str(base_folder(run)) if adapter else None,
        dtype=model.dtype,
        trust_remote_code=model.trust_remote_code,
        quantization=model.quantization if adapter else {},
    )
    export_in_process(run.store.path(saved.path), folder, export)
