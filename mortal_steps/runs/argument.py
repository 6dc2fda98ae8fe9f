"""How a command names a run. Imports nothing, so that commands are quick."""

import os
import shlex
from pathlib import Path

RUNS_DIR = "MORTAL_RUNS_DIR"
"""Environment variable: the folder that holds all runs."""


def run_argument(run_dir: Path) -> str:
    """Return a run's id, with its folder where `mortal` would not look by default."""
    usual = Path(os.environ.get(RUNS_DIR) or "runs").absolute()
    folder = run_dir.absolute().parent
    where = "" if folder == usual else f" --runs-dir {shlex.quote(str(folder))}"
    return f"{run_dir.name}{where}"


RECIPES = ".recipes"
"""In the folder of the runs: what belongs to recipes and is no run."""


def recipe_argument(runs_dir: Path, name: str) -> str:
    """Return a recipe's name, with its folder where `mortal` would not look by default."""
    return run_argument(runs_dir / name)


def names_recipe(runs_dir: Path, name: str) -> bool:
    """Return whether a name is that of a recipe that was begun there, and of no run."""
    return (runs_dir / RECIPES / name).is_dir() and not (runs_dir / name).exists()
