"""`runs`, `show`, `compare`, `verify`, `fetch`: look at runs, here or on a Modal Volume."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from mortal.cli.arguments import AsJson, RunId, RunsDir, Volume, check_output, split_run
from mortal.terminal.output import print_json
from mortal_steps.report.printable import printable
from mortal_steps.runs.argument import names_recipe

if TYPE_CHECKING:  # help needs no runs
    from mortal_steps.report.status import RunStatus
    from mortal_steps.runs.checked import Checked
    from mortal_steps.runs.verify import RunCheck


def runs(runs_dir: RunsDir = Path("runs"), volume: Volume = None, as_json: AsJson = False) -> None:
    """List the runs, oldest first.

    `age` is the time since a run began, and `took` the time from then to its last change. The
    reward is the mean over its last 20 steps; held-out is the reward of its last evaluation.
    """
    from mortal.terminal.listing import print_runs

    found = statuses_of(None, runs_dir, volume)
    stages = {} if volume is not None else stages_of_runs(runs_dir)
    if as_json:
        print_json(with_stages(found, stages))
    elif found:
        print_runs(found, stages)
    else:
        typer.echo(f"no runs in {printable(str(volume or runs_dir))}", err=True)


def show(
    run_id: RunId,
    runs_dir: RunsDir = Path("runs"),
    volume: Volume = None,
    as_json: AsJson = False,
) -> None:
    """Show how far a run is, what it has reached and where its time went.

    For a recipe, show its stages, what each begins with and has reached, and how to go on.
    """
    from mortal.terminal.display import show_run
    from mortal_steps.report.summary import summarize
    from mortal_steps.runs.run import find_run

    runs_dir, run_id = split_run(run_id, runs_dir)
    if volume is None and names_recipe(runs_dir, run_id):
        from mortal.cli.recipes import show_recipe

        show_recipe(runs_dir, run_id, as_json=as_json)
        return
    if volume is not None:
        from mortal.remote.runs import remote_summary

        summary = remote_summary(volume, run_id)
    else:
        summary = summarize(find_run(runs_dir, run_id))
    if as_json:
        print_json(summary)
    else:
        show_run(summary, f"{run_id} --volume {volume}" if volume else None)


def compare(
    run_ids: Annotated[
        list[str], typer.Argument(metavar="RUN", help="Ids of runs, or their folders.")
    ],
    runs_dir: RunsDir = Path("runs"),
    metric: Annotated[
        str | None,
        typer.Option(metavar="SCORE", help="Score of the evaluations. Default: reward or loss."),
    ] = None,
    by: Annotated[
        str, typer.Option(metavar="AXIS", help="Compare by tokens, steps, hours or dollars.")
    ] = "tokens",
    output: Annotated[
        Path | None, typer.Option("--output", "-o", metavar="FILE", help="Draw a PNG of them here.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Compare runs: what each reached and used, and how their configurations differ.

    The last column is the score of each run at the largest amount that all of them have used. Hours
    are the time in which a run was active. Dollars are the estimated cost of its containers and
    judges.
    """
    from mortal.terminal.comparison import show_comparison
    from mortal_steps.report import comparison
    from mortal_steps.runs.run import find_run
    from mortal_steps.store.files import write_output

    if len(run_ids) < 2:
        raise typer.BadParameter("name two runs or more")
    axis = next((each for each in comparison.BYS if each == by), None)
    if axis is None:
        raise typer.BadParameter(f"--by {by}: it is {' or '.join(comparison.BYS)}")
    if output is not None:
        check_output(output)
    runs = [find_run(*split_run(each, runs_dir)) for each in run_ids]
    found = comparison.compare(runs, metric, axis)
    if output is not None:
        write_output(output, comparison.picture(runs, found))
    if as_json:
        print_json(found)
    else:
        show_comparison(found)


def list_checkpoints(
    run_id: Annotated[
        str | None,
        typer.Argument(metavar="RUN", help="Id of a run, or its folder. Default: all runs."),
    ] = None,
    runs_dir: RunsDir = Path("runs"),
    volume: Volume = None,
    as_json: AsJson = False,
) -> None:
    """List the checkpoints that `mortal resume` and `mortal fork` can go on from.

    A run keeps the newest ones and the best, as its section [checkpoints] says.
    """
    from mortal.terminal.listing import print_checkpoints

    print_checkpoints(statuses_of(run_id, runs_dir, volume), as_json=as_json)


def statuses_of(run_id: str | None, runs_dir: Path, volume: str | None) -> list[RunStatus]:
    """Return the status of one run, or of all."""
    from mortal_steps.report.status import status_of, statuses
    from mortal_steps.runs.run import find_run, list_runs

    if run_id is not None:
        runs_dir, run_id = split_run(run_id, runs_dir)
    if volume is not None:
        from mortal.remote.runs import remote_status, remote_statuses

        return remote_statuses(volume) if run_id is None else [remote_status(volume, run_id)]
    if run_id is None:
        return statuses(list_runs(runs_dir))
    return [status_of(find_run(runs_dir, run_id))]


def stages_of_runs(runs_dir: Path) -> dict[str, tuple[str, str]]:
    """Return the recipe and the stage that runs belong to, by their ids. A damaged recipe is warned
    of."""
    from mortal_steps.recipes.record import read_all

    return {
        stage.job_id: (record.name, name)
        for _, record in read_all(runs_dir)
        for name, stage in record.stages.items()
        if stage.job_id is not None
    }


def with_stages(found: list[RunStatus], stages: dict[str, tuple[str, str]]) -> list[dict[str, Any]]:
    """Return what is known of each run, with its recipe and stage."""
    none = (None, None)
    return [
        {**asdict(run), **dict(zip(("recipe", "stage"), stages.get(run.run_id, none), strict=True))}
        for run in found
    ]


def verify(
    run_id: RunId,
    runs_dir: RunsDir = Path("runs"),
    volume: Volume = None,
    as_json: AsJson = False,
) -> None:
    """Check every file of a run against its digest, and the chain of its steps.

    For a stage of a recipe, and for a run that began with another run's model, also check that what
    it began with has not changed since. For a recipe, check all of its stages.
    """
    from mortal.terminal.display import CheckProgress, show_check
    from mortal_steps.runs.verify import check_here

    runs_dir, run_id = split_run(run_id, runs_dir)
    if volume is None and names_recipe(runs_dir, run_id):
        from mortal.cli.recipes import verify_recipe

        raise typer.Exit(0 if verify_recipe(runs_dir, run_id, as_json=as_json) else 1)
    with CheckProgress(quiet=as_json) as progress:
        if volume is None:
            check = check_here(runs_dir, run_id, progress.note)
            check_ancestors(check, runs_dir, run_id, progress.note)
        else:
            from mortal_steps.places.modal.files.volume import RunsVolume
            from mortal_steps.places.modal.files.volume_runs import verify_remote

            check = asyncio.run(verify_remote(RunsVolume(volume), run_id))
            for file in check.files:
                progress.note(file)
    raise typer.Exit(0 if show_check(check, as_json=as_json) else 1)


def check_ancestors(
    check: RunCheck, runs_dir: Path, run_id: str, note: Callable[[Checked], None]
) -> None:
    """Check also what a run comes from."""
    from mortal_steps.recipes.lineage.ancestry import ancestry
    from mortal_steps.recipes.lineage.checking import check_chain

    own, *others = ancestry([runs_dir / run_id], runs_dir)
    if own.damage is not None:  # which the check of the run itself has told
        return
    known = {file.path.resolve() for file in check.files}
    for file in check_chain([own, *others]):
        if file.path.resolve() not in known:
            check.files.append(file)
            note(file)


def fetch(
    run_id: RunId,
    runs_dir: RunsDir = Path("runs"),
    volume: Annotated[
        str, typer.Option(help="Modal Volume that holds the run.", envvar="MORTAL_VOLUME")
    ] = "mortal-runs",
    everything: Annotated[
        bool, typer.Option("--all", help="Also download checkpoints, weights and all steps.")
    ] = False,
) -> None:
    """Download the final model of a run on Modal."""
    from mortal.remote.runs import fetch_run

    runs_dir, run_id = split_run(run_id, runs_dir)
    typer.echo(fetch_run(volume, run_id, runs_dir, everything=everything))
