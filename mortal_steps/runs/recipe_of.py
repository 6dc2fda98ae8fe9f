"""Which recipe a run is a stage of: `mortal resume` continues a stage with its recipe, which goes
on with the stages after it."""

from dataclasses import dataclass
from pathlib import Path

from mortal_steps.runs.argument import names_recipe, run_argument
from mortal_steps.store import RunStore

INPUTS = "inputs.json"
"""In the directory of a run: what the stage that it is began with (recipes/lineage/origin.py)."""


@dataclass(frozen=True, kw_only=True, slots=True)
class StageOfRecipe:
    """What is read here of that record."""

    recipe: str


def recipe_of(run_dir: Path) -> str | None:
    """Return the name of the recipe in the same folder that a run is a stage of, which is what
    `mortal resume` is given then; None for a run of no recipe."""
    found = RunStore(run_dir).find_whole(INPUTS, StageOfRecipe, "the recipe of a run is not known")
    name = found[1].recipe if found is not None else None
    return name if name is not None and names_recipe(run_dir.parent, name) else None


def resumed_dir(run_dir: Path) -> Path:
    """Return the path that names a run or its recipe to `mortal resume`."""
    return run_dir.parent / (recipe_of(run_dir) or run_dir.name)


def resume_argument(run_dir: Path) -> str:
    """Return the same as `run_argument` writes it."""
    return run_argument(resumed_dir(run_dir))
