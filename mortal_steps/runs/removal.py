"""Remove whole runs in a way that a kill cannot leave half a run.

    runs/demo-1  ->  runs/.demo-1.3fa2c19b.trash  ->  gone

The rename takes the whole run away while no other process can drive it. If a kill leaves the hidden
folder behind, it is not taken for a run, and the next `mortal gc` removes it.
"""

from __future__ import annotations

import contextlib
import shutil
from collections import Counter
from pathlib import Path

from mortal_steps.errors import StoreError
from mortal_steps.runs.lease import acquire
from mortal_steps.runs.retention import last_written
from mortal_steps.runs.run import Run
from mortal_steps.store import shared_memory
from mortal_steps.store.files import hidden_beside, sync_to_disk

TRASH = "trash"


def remove_run(run: Run) -> None:
    """Remove the run directory. Raises `StoreError` if the run is driven, has gone on since `run`
    was opened, or something cannot be removed."""
    root, before = run.store.root, last_written(run)
    lease = acquire(run.store)
    try:
        _check_unchanged(run, before)
    except BaseException:
        lease.release()
        raise
    shared_memory.remove_folder(root)
    trash = hidden_beside(root, TRASH)
    try:
        lease.move_away(trash)
    except OSError as error:
        raise StoreError(f"{root} cannot be moved away: {error.strerror}; the run stays") from error
    sync_to_disk(root.parent)
    remove_trash(trash)


def _check_unchanged(run: Run, before: float) -> None:
    run.read_again()
    if last_written(run) != before:
        raise StoreError(f"run {run.store.root.name} went on meanwhile; it stays as it is")


def trash_in(runs_dir: Path) -> list[Path]:
    """Return the folders that removals left when they were killed."""
    return sorted(path for path in runs_dir.glob(f".*.{TRASH}") if path.is_dir())


def remove_trash(trash: Path) -> None:
    """Remove these folders. Raises `StoreError`, which names what cannot be removed."""
    try:
        shutil.rmtree(trash)
    except OSError as error:
        raise StoreError(
            f"{error.filename} cannot be removed: {error.strerror}; make it removable, then call "
            "`mortal gc --delete` again, which finishes what it has begun"
        ) from error


def freed_bytes(path: Path) -> int:
    """Return the bytes of the disk that are free once this file or folder is removed. A file that
    has a link elsewhere does not count."""
    freed, links = 0, Counter[tuple[int, int]]()
    for file in [path, *path.rglob("*")]:
        with contextlib.suppress(FileNotFoundError):  # a run that goes on removes files
            found = file.lstat()
            links[found.st_dev, found.st_ino] += 1
            if file.is_dir() or links[found.st_dev, found.st_ino] == found.st_nlink:
                freed += found.st_blocks * 512
    return freed
