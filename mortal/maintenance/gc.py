"""`mortal gc`: decides which runs may go, measures and removes them, never half of one.

    runs/demo-1  ->  runs/.demo-1.3fa2c19b.trash  ->  gone

The rename takes a run away while no other process can drive it. A hidden folder that a kill leaves
is not taken for a run, and goes with the next `mortal gc`.
"""

import contextlib
import functools
import math
import os
import shutil
import stat
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from mortal_steps.errors import StoreError
from mortal_steps.orchestration.trials.grading import FOLDER as GRADED
from mortal_steps.policy.starting_model.base_model import model_cache
from mortal_steps.recipes.keeping import made_with, named_by_recipes, unused_products
from mortal_steps.registry.registry import runs_in_use
from mortal_steps.report.units import byte_size, duration
from mortal_steps.runs.identity import is_beginning
from mortal_steps.runs.lease import LOCK_FILE, acquire, is_driven
from mortal_steps.runs.objects import BEFORE_A_RUN_S, remove_object, unused_objects
from mortal_steps.runs.retention import DAY_S, last_written, needs_of, what_may_go
from mortal_steps.runs.run import Run, list_runs
from mortal_steps.serving.whole import EXPORTED, is_used, unused
from mortal_steps.store import RunStore, shared_memory
from mortal_steps.store.files import hidden_beside, locked_at_once, sync_to_disk
from mortal_steps.store.folders import looks_below
from mortal_steps.store.identity import IDENTITY_FILE, read_identity

TRASH = "trash"
MODELS = "models"
"""The folder of the models in use, where none is named."""
HALF_MADE = ".*.????????.partial"
"""Names of folders that are renamed once they are whole (`hidden_beside`)."""


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
        if trash.is_symlink():
            trash.unlink()
        else:
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
    for found in looks_below(path):
        links[found.st_dev, found.st_ino] += 1
        if stat.S_ISDIR(found.st_mode) or links[found.st_dev, found.st_ino] == found.st_nlink:
            freed += found.st_blocks * 512
    return freed


LOCK = ".gc.lock"
"""A file in the folder of runs, locked by the process that removes runs."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Item:
    """Something that may be removed."""

    what: str
    num_bytes: int
    """Bytes that are freed on the disk."""
    remove: Callable[[], None]


@dataclass(frozen=True, kw_only=True, slots=True)
class Removals:
    """What may be removed from a folder of runs."""

    items: tuple[Item, ...]
    kept: tuple[str, ...]
    """Runs that are old enough to be removed and stay, each with the reason."""


def plan(
    runs_dir: Path,
    *,
    keep_days: float | None = None,
    protected: Collection[str] = (),
) -> Removals:
    """Apply the runs' `[retention]`, or `keep_days`; changes nothing. `protected`: ids to keep."""
    now, runs = time.time(), list_runs(runs_dir)
    named, made = named_by_recipes(runs_dir), made_with(runs, runs_dir)
    going, kept = what_may_go(
        runs,
        now=now,
        keep_days=keep_days,
        protected=protected,
        used={path.name: why for path, why in named.items()},
        made_with=made,
    )
    items = [
        _item(f"{trash.name}, left by a removal that was killed", trash, remove_trash)
        for trash in trash_in(runs_dir)
    ]
    items += [
        _item(f"{path.relative_to(runs_dir)}, left half made by a kill", path, remove_trash)
        for path in _half_made(runs_dir, now - BEFORE_A_RUN_S)
    ]
    items += _left_in_memory(runs_dir)
    items += [_whole(run, now) for run in going]
    names = [run.store.root.name for run in going]
    items += [
        _item(f"object {path.name}, given to a trainer: no run names it", path, remove_object)
        for path in unused_objects(runs_dir, without=names)
    ]
    staying = [run.store.root for run in runs if run.store.root.name not in names]
    keep_s = BEFORE_A_RUN_S if keep_days is None else keep_days * DAY_S
    discard = functools.partial(_discard, runs_dir)
    for path in unused_products(runs_dir, staying, keep_s, named):
        what = f"{path.relative_to(runs_dir.resolve())}, of a recipe that does not name it any more"
        items.append(_item(what, path, discard))
    for path in _never_begun(runs_dir, now - BEFORE_A_RUN_S):
        what = f"{path.name}, of a run that was killed before it began"
        items.append(_item(what, path, functools.partial(discard, check=_check_not_begun)))
    for path in sorted((runs_dir / GRADED).glob("[!.]*/")):
        if _last_change(path) < now - keep_s:
            items.append(_item(f"{GRADED}/{path.name}, which `mortal grade` made", path, discard))
    used = {path.name for path in named}.union(protected, *needs_of(runs, made).values())
    alone = [root for root in staying if root.name not in used]
    items += _exported(runs_dir, alone, before=now - keep_s)
    return Removals(
        items=tuple(items), kept=tuple(f"{run_id}: {why}" for run_id, why in kept.items())
    )


def runs_in_production(runs_dir: Path, models_dir: Path | None) -> set[str]:
    """Return the ids of the runs that the models in use in `models_dir` come from; by default, of
    those in the `models` of the current folder and of the folders in which the runs began, where
    `mortal promote` puts them; where you may not look into one of the latter, the runs that began
    there. Raises as `runs_in_use`."""
    if models_dir is not None:
        return runs_in_use(models_dir)
    here, used = (Path.cwd() / MODELS).resolve(), set[str]()
    began = defaultdict[Path, set[str]](set)
    for path in runs_dir.glob(f"[!.]*/{IDENTITY_FILE}"):
        with contextlib.suppress(StoreError, OSError):  # of which the plan tells
            if (info := read_identity(RunStore(path.parent))) is not None:
                began[(Path(info.working_dir) / MODELS).resolve()].add(path.parent.name)
    for models in sorted({here, *began}):
        try:
            used |= runs_in_use(models)
        except OSError:  # somebody else's: each of these runs may be in use there
            if models == here:
                raise
            used |= began[models]
    return used


def _item(what: str, path: Path, remove: Callable[[Path], None]) -> Item:
    return Item(what=what, num_bytes=freed_bytes(path), remove=functools.partial(remove, path))


def carry_out(planned: Removals, runs_dir: Path, report: Callable[[str], None]) -> bool:
    """Remove all items in order, going on after a killed call; returns whether all could be
    removed. Raises `StoreError` if another process is removing runs from this folder."""
    done = True
    if not runs_dir.is_dir():
        return done
    with _alone(runs_dir):
        for item in planned.items:
            try:
                item.remove()
            except StoreError as error:
                report(f"stays: {item.what}: {error}")
                done = False
            else:
                report(f"removed {item.what} ({byte_size(item.num_bytes)})")
    return done


def _exported(runs_dir: Path, roots: Iterable[Path], before: float) -> Iterator[Item]:
    """Whole models that commands have made of these runs, used last before that time, and that no
    process uses. Runs that are not the caller's to write to, or lie elsewhere, are left out."""

    def check(folder: Path) -> None:
        if _last_change(folder) >= before:
            raise StoreError("a command has used it meanwhile")

    def remove(folder: Path) -> None:
        with unused(folder) as is_unused:
            if not is_unused:
                raise StoreError("a process uses it")
            _discard(runs_dir, folder, lock=folder.parent / "lock", check=check)

    for root in roots:
        if root.is_symlink() or not os.access(root, os.W_OK):
            continue
        for path in sorted((root / EXPORTED).glob("*/")):  # also what a kill has left of one
            if _last_change(path) < before and not is_used(path):
                what = f"{path.relative_to(runs_dir)}, made to serve or promote that model"
                yield _item(what, path, remove)


def _last_change(folder: Path) -> float:
    return max((found.st_mtime for found in looks_below(folder)), default=math.inf)


def _half_made(runs_dir: Path, before: float) -> list[Path]:
    """Return the forks and starting models that nobody has gone on making since then."""
    found = [*runs_dir.glob(HALF_MADE), *model_cache(runs_dir).glob(HALF_MADE)]
    return sorted(path for path in found if path.is_dir() and _last_change(path) < before)


def _never_begun(runs_dir: Path, before: float) -> Iterator[Path]:
    """Yield the folders of runs whose identity nobody has gone on writing since then; those of a
    recipe's stages are `unused_products`."""
    for lock in sorted(runs_dir.glob(f"[!.]*/{LOCK_FILE}")):
        folder = lock.parent
        if folder.is_symlink() or not os.access(folder, os.R_OK | os.W_OK):
            continue
        if is_beginning(folder) and _last_change(folder) < before:
            yield folder


def _check_not_begun(folder: Path) -> None:
    if not is_beginning(folder):
        raise StoreError("a run has begun there meanwhile")


def _discard(
    runs_dir: Path,
    folder: Path,
    lock: Path | None = None,
    check: Callable[[Path], None] = lambda folder: None,
) -> None:
    """Remove what was made once and would be made again. Raises `StoreError` while it is, for a
    link, and what `check` raises once the folder is locked."""
    if folder.is_symlink():
        raise StoreError("it is a link to another folder; remove both by hand")
    with locked_at_once(lock or folder / "lock") as held:
        if held is None:
            raise StoreError("a process works there")
        check(folder)
        trash = hidden_beside(runs_dir / folder.name, TRASH)
        try:
            folder.rename(trash)
        except OSError as error:  # such as a folder that is a link to another disk
            raise StoreError(
                f"{folder} cannot be moved into {runs_dir}: {error.strerror}; remove it by hand"
            ) from error
    remove_trash(trash)


def _left_in_memory(runs_dir: Path) -> Iterator[Item]:
    """Folders in shared memory of runs of this folder that nobody drives."""
    for folder, run in shared_memory.folders():
        if run.parent != runs_dir.resolve():
            continue
        if not run.exists() or not is_driven(RunStore(run)):
            yield Item(
                what=f"{folder}, weights in memory that a killed run, {run.name}, has left",
                num_bytes=freed_bytes(folder),
                remove=functools.partial(_remove_from_memory, run),
            )


def _remove_from_memory(run: Path) -> None:
    """Raise `StoreError` if a process drives the run by now."""
    lease = acquire(RunStore(run)) if run.exists() else None
    try:
        shared_memory.remove_folder(run)
    finally:
        if lease is not None:
            lease.release()


def _whole(run: Run, now: float) -> Item:
    manifest, root = run.manifest, run.store.root
    age = duration(now - last_written(run))
    return Item(
        what=f"run {root.name}: {run.status()}, step {manifest.step}, {age} old",
        num_bytes=freed_bytes(root),
        remove=lambda: remove_run(run),
    )


@contextlib.contextmanager
def _alone(runs_dir: Path) -> Iterator[None]:
    with locked_at_once(runs_dir / LOCK) as lock:
        if lock is None:
            raise StoreError(f"another `mortal gc` removes runs of {runs_dir}")
        yield
