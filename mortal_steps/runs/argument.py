"""How a command names a run. Imports nothing, so that commands are quick."""

import os
import shlex
from pathlib import Path

RUNS_DIR = "MORTAL_RUNS_DIR"
"""Environment variable: the folder that holds all runs."""


RECIPES = ".recipes"
"""In the folder of the runs: what belongs to recipes and is no run."""


def run_argument(run_dir: Path) -> str:
    """Return a run's id, or the name of a recipe, with the folder of the runs where `mortal` would
    not look by default. A recipe may be named as a folder among the runs or by its own folder."""
    usual = Path(os.environ.get(RUNS_DIR) or "runs").absolute()
    folder = run_dir.absolute().parent
    folder = folder.parent if folder.name == RECIPES else folder
    where = "" if folder == usual else f" --runs-dir {shlex.quote(str(folder))}"
    return f"{run_dir.name}{where}"


def names_recipe(runs_dir: Path, name: str) -> bool:
    """Return whether a name is that of a recipe that was begun there, and of no run."""
    return (runs_dir / RECIPES / name).is_dir() and not (runs_dir / name).exists()
