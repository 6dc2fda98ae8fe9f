"""Removes whole runs, or their rollouts, in a way that a kill cannot leave half a run.

    runs/demo-1  ->  runs/.demo-1.3fa2c19b.trash  ->  gone

The rename takes the whole run away while no other process can drive it. If a kill leaves the hidden
folder behind, it is not taken for a run, and the next `mortal gc` removes it.
"""

from __future__ import annotations

import contextlib
import os
import shutil
from collections import Counter
from pathlib import Path

from mortal_steps.errors import StoreError
from mortal_steps.policy.on_disk import rollout_files
from mortal_steps.runs.lease import acquire
from mortal_steps.runs.retention import last_written
from mortal_steps.runs.run import Run
from mortal_steps.store import shared_memory
from mortal_steps.store.files import hidden_beside, sync_to_disk

TRASH = "trash"


def remove_run(run: Run) -> None:
    """Remove the run directory.

    Raises `StoreError` if a process drives the run, if the run has continued since `run` was
    opened, or if something cannot be removed.
    """
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


def prune_run(run: Run, keep_rollouts: int) -> None:
    """Remove the rollouts of a complete run, except those of its newest `keep_rollouts` steps.
    Raises `StoreError` as `remove_run` does."""
    before = last_written(run)
    lease = acquire(run.store)
    try:
        _check_unchanged(run, before)
        rollout_files.prune_before(run.store, prunable_before(run, keep_rollouts))
    finally:
        lease.release()


def prunable_before(run: Run, keep_rollouts: int) -> int:
    """Return the step up to which a complete run does not need its rollouts. If its final model has
    to be made again, this begins at the newest checkpoint."""
    saved = run.manifest.checkpoints
    return min(run.manifest.step - keep_rollouts, saved[-1].step if saved else 0)


def _check_unchanged(run: Run, before: float) -> None:
    run.read_again()
    if last_written(run) != before:
        raise StoreError(f"run {run.store.root.name} went on meanwhile; it stays as it is")


def trash_in(runs_dir: Path) -> list[Path]:
    """Folders that removals left when they were killed."""
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


class FreedSpace:
    """How many bytes of the disk are freed as folders are removed one by one. A file counts when
    its last link is removed."""

    def __init__(self) -> None:
        self._links: Counter[tuple[int, int]] = Counter()

    def without(self, folder: Path) -> int:
        """Return the bytes that are free once this folder is removed as well."""
        freed = 0
        for parent, _, names in os.walk(folder):
            for name in names:
                with contextlib.suppress(FileNotFoundError):  # a run that goes on removes files
                    found = os.lstat(os.path.join(parent, name))
                    file = (found.st_dev, found.st_ino)
                    self._links[file] += 1
                    if self._links[file] == found.st_nlink:
                        freed += found.st_blocks * 512
        return freed
