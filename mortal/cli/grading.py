"""`grade`: how often a model solves each problem of a dataset."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from mortal.cli.arguments import (
    Overrides,
    TriedConfig,
    WhereRunsGo,
    check_output,
    place_of_run,
    split_run,
    with_flags,
)
from mortal.terminal.output import waiting
from mortal_steps.errors import ConfigError

if TYPE_CHECKING:
    from mortal_steps.config import DataConfig

Run = Annotated[
    str | None,
    typer.Option("--run", metavar="RUN", help="Grade with the final model of this run instead."),
]
Output = Annotated[
    Path,
    typer.Option(
        "--output",
        "-o",
        metavar="FILE",
        help="Write the rows here, as JSON lines, with their grades in further columns.",
    ),
]


@with_flags
def grade(
    context: typer.Context,
    config: TriedConfig = None,
    overrides: Overrides = None,
    num_completions: Annotated[
        int, typer.Option("--completions", min=1, metavar="K", help="Completions per problem.")
    ] = 8,
    run_id: Run = None,
    success: Annotated[
        float | None,
        typer.Option(
            metavar="REWARD",
            help="Lowest reward of a solution. Default: the highest that any completion gets.",
        ),
    ] = None,
    output: Output = Path("graded.jsonl"),
    runs_dir: WhereRunsGo = None,
    **flags: Any,
) -> None:
    """Sample each problem of the dataset K times, and write how often it is solved.

    Model, engine, sampling settings and rewards are those of a run with this
    configuration. The file is the dataset with the columns `pass_rate`,
    `mean_reward` and `group_size`; `selection.column = "..."` or a filter of
    your own can go by them. Called again after a kill, it goes on; called
    again after its end, it scores again what could not be scored.
    """
    import asyncio

    from mortal.terminal.grades import show_grades
    from mortal_steps.orchestration.trials.grading import Grading, write_rows
    from mortal_steps.orchestration.trials.opening import settings_of_trial
    from mortal_steps.orchestration.trials.trial import all_problems
    from mortal_steps.plan.loader import load_config
    from mortal_steps.plan.parts import Plan
    from mortal_steps.runs.run import find_run
    from mortal_steps.serving.whole import folder_of_trained

    settings = load_config(config, overrides or (), flags)
    place = place_of_run(None, runs_dir, overrides or (), context)
    settings = settings.model_copy(update=place)
    check_output(output)
    _check_is_no_source(output, settings.data)
    waiting("reading the problems")
    problems = all_problems(Plan(settings).problems)
    settings, model = settings_of_trial(settings).without_teachers(), None
    if run_id is not None:
        folder, name = split_run(run_id, Path(settings.runs_dir))
        model = folder_of_trained(find_run(folder, name))
        settings = settings.of_finished_model()
    waiting(f"sampling {len(problems):,} problems, {num_completions} completions of each")
    grading = Grading(
        *(Plan(settings).workers, problems, settings.sampling),
        num_generations=num_completions,
        problems_per_shard=settings.problems_per_shard,
        runs_dir=Path(settings.runs_dir),
    )
    grades = asyncio.run(grading.grade(model, success=success, report=_told_by_percent))
    write_rows(output, grades, settings.data.prompt_column)
    show_grades(grades, settings.seed)
    typer.echo(f"written to {output}")


def _check_is_no_source(output: Path, data: DataConfig) -> None:
    """Raise `ConfigError` for a file of the dataset, whose rows are not all graded, as a rule, and
    for a new one in a folder that the dataset is."""
    written = output.resolve()
    for source in filter(None, (data.source, *data.eval_sources.values())):
        path = Path(source).expanduser().resolve()
        if path.is_dir() and written.is_relative_to(path) and not output.exists():
            raise ConfigError(
                f"--output {output} lies in {source}, which is the dataset: the grades would be "
                "rows of it; name a file elsewhere"
            )
        if output.exists() and written.is_relative_to(path):
            raise ConfigError(
                f"--output {output} is the dataset itself, of which rows that are held out or left "
                "out would be lost; name another file"
            )


def _told_by_percent(done: int, total: int) -> None:
    waiting(f"{done:,} of {total:,} completions")
