"""What recipes keep: runs and products that a recipe names, and all that a kept model comes from.

A recipe names the jobs of its stages as it was begun last. A night with other data names others;
what it named before goes as its runs go, unless something that stays comes from it.
"""

import time
from collections.abc import Collection, Iterable, Iterator, Sequence
from pathlib import Path

from mortal_steps.recipes.lineage.ancestry import takes_of
from mortal_steps.recipes.lineage.naming import folder_of_job
from mortal_steps.recipes.products import OUT, WORK
from mortal_steps.recipes.products import RECORD as PRODUCT
from mortal_steps.recipes.record import list_recipes
from mortal_steps.runs.argument import RECIPES
from mortal_steps.runs.recipe_of import INPUTS
from mortal_steps.runs.run import Run
from mortal_steps.store.folders import looks_below
from mortal_steps.store.identity import IDENTITY_FILE


def named_by_recipes(runs_dir: Path) -> dict[Path, str]:
    """Return the folder of each job that a recipe names, with the words for that. Raises
    `CorruptFileError` for a damaged recipe: nothing is known then of what it names."""
    found: dict[Path, str] = {}
    for folder in list_recipes(runs_dir):
        record = folder.read()
        for name, job_id in record.jobs.items() if record else ():
            path = folder_of_job(runs_dir, folder.name, name, job_id)
            found[path.resolve()] = f"recipe {folder.name} has it as its stage {name}"
    return found


def made_with(runs: Sequence[Run], runs_dir: Path) -> dict[str, set[str]]:
    """Return by id which runs of the folder each was made with, also by way of products of stages
    that are no runs. Raises `CorruptFileError` where a record says no more of that."""
    found: dict[str, set[str]] = {}
    for run in runs:
        behind = _behind([run.store.root], runs_dir, through_runs=False)
        found[run.store.root.name] = {
            path.name for path in behind if path.parent == runs_dir.resolve()
        }
    return found


def unused_products(
    runs_dir: Path, staying: Iterable[Path], keep_s: float, named: Collection[Path]
) -> list[Path]:
    """Return the folders in which stages have made something, or begun to, that no recipe names,
    from which nothing that stays comes, and that are older than so many seconds."""
    kept = _behind([*staying, *named], runs_dir, through_runs=True)
    before = time.time() - keep_s
    return [
        path for path in sorted(_made_in(runs_dir)) if path not in kept and _is_old(path, before)
    ]


def _made_in(runs_dir: Path) -> Iterator[Path]:
    for path in (runs_dir.resolve() / RECIPES).glob("*/*/"):
        if any((path / name).exists() for name in (PRODUCT, INPUTS, OUT, WORK)):
            yield path
    for origin in runs_dir.resolve().glob(f"[!.]*/{INPUTS}"):  # of a run that did not begin
        if not (origin.parent / IDENTITY_FILE).exists():
            yield origin.parent


def _is_old(path: Path, before: float) -> bool:
    return max((look.st_mtime for look in looks_below(path)), default=before) < before


def _behind(folders: Iterable[Path], runs_dir: Path, *, through_runs: bool) -> set[Path]:
    """Return these folders and those that what is in them was made with; not beyond other runs, if
    not `through_runs`."""
    first = [folder.resolve() for folder in folders]
    found, waiting = set[Path](), [*first]
    while waiting:
        folder = waiting.pop()
        if folder in found:
            continue
        found.add(folder)
        is_run = (folder / IDENTITY_FILE).exists()
        if folder.exists() and (through_runs or folder in first or not is_run):
            makers = (each.made_by for each in takes_of(folder, runs_dir))
            waiting += [Path(maker) for maker in makers if maker]
    return found
