"""`track`: brings a run to a tracker."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from mortal.cli.arguments import RunId, RunsDir, find_place


def track(
    run_id: RunId,
    to: Annotated[
        list[str] | None,
        typer.Option(
            "--to",
            metavar="TRACKER",
            help="wandb, tensorboard, trackio, or one of your own as module:Class. May be "
            "repeated. Default: as the run's logging.report_to says.",
        ),
    ] = None,
    project: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="Project there. Default: as logging.project says."),
    ] = None,
    follow: Annotated[
        bool, typer.Option("--follow", "-f", help="Go on until the run ends or stops.")
    ] = False,
    runs_dir: RunsDir = Path("runs"),
) -> None:
    """Send a run's steps to a tracker, such as W&B, except those that it already has.

    Each step is sent once, however often you call this. It also works for a run that had no
    tracker, and for one in progress.
    """
    import asyncio

    from mortal.terminal.output import say
    from mortal_steps.errors import ConfigError, StoreError
    from mortal_steps.orchestration.tracking import catch_up, check_trackers, with_logging
    from mortal_steps.runs.run import find_run

    runs_dir, run_id = find_place(run_id, runs_dir)
    run = find_run(runs_dir, run_id)
    names = tuple(to or run.config.logging.report_to)
    if not names:
        raise ConfigError(f"run {run_id} has no logging.report_to; name a tracker with --to")
    chosen = with_logging(run, report_to=names, **({"project": project} if project else {}))
    check_trackers(names, "--to" if to else "logging.report_to")
    for reached in asyncio.run(catch_up(chosen, follows=follow)):
        if reached.error:
            raise StoreError(f"{reached.name}: {reached.error}")
        say(f"{reached.name} has the run up to step {max(0, reached.step)}")
