"""`train`, `resume`, `show` and `verify` of a recipe; `lineage`."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer

from mortal.cli.arguments import AsJson, RunsDir
from mortal.cli.promoting import ModelsDir
from mortal_steps.errors import ConfigError


def train_recipe(
    file: Path,
    overrides: Sequence[str],
    only: Sequence[str],
    runs_dir: str | None,
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
        config = config.model_copy(update={"runs_dir": runs_dir})
    if dry_run:
        rehearse_recipe(config, only, file)
    else:
        drive_recipe(config, only, file=file)


def resume_recipe(runs_dir: Path, name: str, overrides: Sequence[str]) -> None:
    """Go on with a recipe as it was last begun."""
    from mortal.drive_recipe import resume_recipe as go_on

    if overrides:
        raise ConfigError(
            f"{name} is a recipe, which goes on as it was begun; to change something, begin it "
            "with its file: `mortal train FILE --set ...` makes only what the change is about"
        )
    go_on(runs_dir, name)


def show_recipe(runs_dir: Path, name: str, *, as_json: bool) -> None:
    """Print how the stages of a recipe stand."""
    from mortal.terminal.output import print_json
    from mortal.terminal.recipes import show_recipe as show
    from mortal_steps.recipes.record import find_recipe
    from mortal_steps.recipes.report.view import how_to_go_on, look_at_stages, where_of

    folder = find_recipe(runs_dir, name)
    record = folder.read()
    assert record is not None
    stages = look_at_stages(record, runs_dir)
    if as_json:
        print_json(
            {
                **asdict(record),
                "stages": stages,
                "next": how_to_go_on(record, where_of(runs_dir, name)),
            }
        )
    else:
        show(folder, record, stages)


def verify_recipe(runs_dir: Path, name: str, *, as_json: bool) -> bool:
    """Check that what each stage has produced is what it was, and what the stages after it have
    taken; return whether nothing is damaged."""
    from mortal.terminal.display import CheckProgress, show_check
    from mortal_steps.recipes.lineage.ancestry import ancestry
    from mortal_steps.recipes.lineage.checking import check_chain
    from mortal_steps.recipes.lineage.naming import folders_of_recipe
    from mortal_steps.recipes.record import find_recipe
    from mortal_steps.runs.verify import RunCheck

    record = find_recipe(runs_dir, name).read()
    assert record is not None
    check = RunCheck()
    folders = [*reversed(folders_of_recipe(runs_dir, record).values())]
    with CheckProgress(quiet=as_json) as progress:
        for file in check_chain(ancestry(folders, runs_dir)):
            check.files.append(file)
            progress.note(file)
    return show_check(check, as_json=as_json, stages=len(folders))


def lineage(
    model: Annotated[
        str,
        typer.Argument(
            metavar="MODEL",
            help="A folder of a model, a run, a stage as RECIPE/STAGE, a recipe, or a name of a "
            "model in use.",
        ),
    ],
    runs_dir: RunsDir = Path("runs"),
    models_dir: ModelsDir = Path("models"),
    as_json: AsJson = False,
) -> None:
    """Show where a model comes from: the runs that made it, what these began with, and so on, down
    to datasets and the code of their time.

    The digests are those that were noted; `mortal verify` reads the files again.
    """
    from mortal.terminal.output import print_json
    from mortal.terminal.recipes import show_lineage
    from mortal_steps.recipes.lineage.ancestry import ancestry
    from mortal_steps.recipes.lineage.naming import folders_named

    found = ancestry(folders_named(model, runs_dir, models_dir), runs_dir)
    if as_json:
        print_json(found)
    else:
        show_lineage(found)
