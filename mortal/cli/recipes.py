"""`train` and `resume` of a recipe."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from mortal_steps.errors import ConfigError


def train_recipe(
    file: Path,
    overrides: Sequence[str],
    only: Sequence[str],
    runs_dir: Path | None,
    given: Mapping[str, Any],
    *,
    dry_run: bool,
) -> None:
    """Make the stages of a recipe that are not complete, or say what there is to do."""
    from mortal.drive_recipe import drive_recipe, rehearse_recipe
    from mortal_steps.recipes.file import read_recipe

    flags = [name for name, value in given.items() if value not in (None, [])]
    if flags:
        option = f"--{flags[0].replace('_', '-')}"
        raise ConfigError(
            f"{option} is for a run, and {file} is a recipe; set the key of a stage, such as --set "
            "stages.NAME.training.max_steps=20"
        )
    config = read_recipe(file, overrides)
    if runs_dir is not None:
        config = config.model_copy(update={"runs_dir": str(runs_dir)})
    if dry_run:
        rehearse_recipe(config, only)
    else:
        drive_recipe(config, only)


def resume_recipe(runs_dir: Path, name: str, overrides: Sequence[str]) -> None:
    """Go on with a recipe as it was last begun."""
    from mortal.drive_recipe import resume_recipe as go_on

    if overrides:
        raise ConfigError(
            f"{name} is a recipe, which goes on as it was begun; to change something, begin it "
            "with its file: `mortal train FILE --set ...` makes only what the change is about"
        )
    go_on(runs_dir, name)
