"""`runs`, `show`, `verify`, `fetch`: the commands that look at runs, here or on a Modal Volume."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Annotated

import typer

from mortal.cli.arguments import AsJson, RunId, RunsDir, Volume


def runs(runs_dir: RunsDir = Path("runs"), volume: Volume = None, as_json: AsJson = False) -> None:
    """List the runs."""
    from mortal.display import runs_table
    from mortal_steps.report.summary import summarize
    from mortal_steps.runs.run import list_runs

    if volume is not None:
        from mortal.modal_runs import summaries_there

        summaries = summaries_there(volume)
    else:
        summaries = [summarize(run) for run in list_runs(runs_dir)]
    if as_json:
        typer.echo(json.dumps([dataclasses.asdict(summary) for summary in summaries], indent=1))
    elif summaries:
        runs_table(summaries)
    else:
        typer.echo(f"no runs in {volume or runs_dir}")


def show(
    run_id: RunId, runs_dir: RunsDir = Path("runs"), volume: Volume = None, as_json: AsJson = False
) -> None:
    """Show where a run stands, what it reached and where its time went."""
    from mortal.display import show_run
    from mortal_steps.report.summary import summarize
    from mortal_steps.runs.run import find_run

    if volume is not None:
        from mortal.modal_runs import summary_there

        summary = summary_there(volume, run_id)
    else:
        summary = summarize(find_run(runs_dir, run_id))
    if as_json:
        typer.echo(json.dumps(dataclasses.asdict(summary), indent=1))
    else:
        show_run(summary)


def verify(
    run_id: RunId, runs_dir: RunsDir = Path("runs"), volume: Volume = None, as_json: AsJson = False
) -> None:
    """Check every file of a run against its digest, and the chain of its steps."""
    from mortal.display import show_check
    from mortal_steps.runs.verify import FinishedCheck, RunCheck, check_here

    check: RunCheck | FinishedCheck
    if volume is not None:
        from mortal.modal_runs import check_there

        check = check_there(volume, run_id)
    else:
        check = check_here(runs_dir, run_id)
    raise typer.Exit(0 if show_check(check, as_json=as_json) else 1)


def fetch(
    run_id: RunId,
    runs_dir: RunsDir = Path("runs"),
    volume: Annotated[
        str, typer.Option(help="Modal Volume that holds the run.", envvar="MORTAL_VOLUME")
    ] = "mortal-runs",
    everything: Annotated[
        bool, typer.Option("--all", help="Checkpoints, weights and every step, too.")
    ] = False,
) -> None:
    """Bring the final model of a run on Modal here."""
    from mortal.modal_runs import fetch_run

    typer.echo(fetch_run(volume, run_id, runs_dir, everything=everything))
