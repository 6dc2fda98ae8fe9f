"""`mortal gc`: decides which runs in a folder may be removed, measures and removes them."""

from __future__ import annotations

import contextlib
import functools
import time
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from pathlib import Path

from mortal_steps.errors import StoreError
from mortal_steps.policy.on_disk.rollout_files import files_before
from mortal_steps.report.units import byte_size, duration
from mortal_steps.runs.lease import acquire, is_driven
from mortal_steps.runs.objects import object_bytes, remove_object, unused_objects
from mortal_steps.runs.removal import (
    FreedSpace,
    prunable_before,
    prune_run,
    remove_run,
    remove_trash,
    trash_in,
)
from mortal_steps.runs.retention import last_written, survey, what_may_go
from mortal_steps.runs.run import Run, list_runs
from mortal_steps.store import RunStore, shared_memory
from mortal_steps.store.files import locked_at_once

LOCK = ".gc.lock"
"""A file in the folder of runs, locked by the process that removes runs."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Item:
    """A run or a part of one that may be removed."""

    what: str
    num_bytes: int
    """Bytes that are freed on the disk if this and all items before it are removed."""
    remove: Callable[[], None]


@dataclass(frozen=True, kw_only=True, slots=True)
class Plan:
    """What may be removed from a folder of runs."""

    items: tuple[Item, ...]
    kept: tuple[str, ...]
    """Runs that are old enough to be removed and stay, each with the reason."""


def plan(
    runs_dir: Path,
    *,
    keep_days: float | None = None,
    keep_rollouts: int | None = None,
    protected: Collection[str] = (),
) -> Plan:
    """Apply the runs' `[retention]`, or these numbers in its place; changes nothing. `protected`
    are ids of runs that are kept whole."""
    now = time.time()
    runs = {run.store.root.name: run for run in list_runs(runs_dir)}
    known = survey(list(runs.values()), keep_days=keep_days, keep_rollouts=keep_rollouts)
    decided = what_may_go(known, now=now, protected=protected)
    freed = FreedSpace()
    items = [_leftover(trash, freed) for trash in trash_in(runs_dir)]
    items += _left_in_memory(runs_dir)
    items += [_whole(runs[run_id], now, freed) for run_id in decided.remove]
    items += map(_object, unused_objects(runs_dir, without=decided.remove))
    for run_id, steps in decided.prune.items():
        items.extend(_rollouts(runs[run_id], steps))
    kept = tuple(f"{run_id}: {why}" for run_id, why in decided.kept.items())
    return Plan(items=tuple(items), kept=kept)


def carry_out(planned: Plan, runs_dir: Path, say: Callable[[str], None]) -> bool:
    """Remove all items in order; returns whether everything could be removed.

    A call that is killed is continued by the next one. Raises `StoreError` if another process is
    removing runs from this folder.
    """
    done = True
    if not runs_dir.is_dir():
        return done
    with _alone(runs_dir):
        for item in planned.items:
            try:
                item.remove()
            except StoreError as error:
                say(f"stays: {item.what}: {error}")
                done = False
            else:
                say(f"removed {item.what} ({byte_size(item.num_bytes)})")
    return done


def _leftover(trash: Path, freed: FreedSpace) -> Item:
    return Item(
        what=f"{trash.name}, left by a removal that was killed",
        num_bytes=freed.without(trash),
        remove=lambda: remove_trash(trash),
    )


def _left_in_memory(runs_dir: Path) -> Iterator[Item]:
    """Folders in shared memory of runs of this folder that nobody drives."""
    for folder, run in shared_memory.folders():
        if run.parent != runs_dir.resolve():
            continue
        if not run.exists() or not is_driven(RunStore(run)):
            yield Item(
                what=f"{folder}, weights in memory that a killed run, {run.name}, has left",
                num_bytes=FreedSpace().without(folder),
                remove=functools.partial(_remove_from_memory, run),
            )


def _remove_from_memory(run: Path) -> None:
    """Raises `StoreError` if a process drives the run by now."""
    lease = acquire(RunStore(run)) if run.exists() else None
    try:
        shared_memory.remove_folder(run)
    finally:
        if lease is not None:
            lease.release()


def _whole(run: Run, now: float, freed: FreedSpace) -> Item:
    manifest, root = run.manifest, run.store.root
    age = duration(now - last_written(run))
    return Item(
        what=f"run {root.name}: {run.status()}, step {manifest.step}, {age} old",
        num_bytes=freed.without(root),
        remove=lambda: remove_run(run),
    )


def _object(path: Path) -> Item:
    return Item(
        what=f"object {path.name}, given to a trainer: no run names it",
        num_bytes=object_bytes(path),
        remove=lambda: remove_object(path),
    )


def _rollouts(run: Run, keep: int) -> Iterator[Item]:
    before = prunable_before(run, keep)
    files = list(files_before(run.store, before))
    if files:
        yield Item(
            what=f"rollouts of run {run.store.root.name} before step {before}",
            num_bytes=sum(path.stat().st_blocks * 512 for path in files if _is_alone(path)),
            remove=lambda: prune_run(run, keep),
        )


def _is_alone(path: Path) -> bool:
    return path.stat().st_nlink == 1


@contextlib.contextmanager
def _alone(runs_dir: Path) -> Iterator[None]:
    with locked_at_once(runs_dir / LOCK) as lock:
        if lock is None:
            raise StoreError(f"another `mortal gc` removes runs of {runs_dir}")
        yield
