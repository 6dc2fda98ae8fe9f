"""`status`, `samples`, `problems`, `logs`, `track`: look into runs, including those in progress."""

from __future__ import annotations

import contextlib
import dataclasses
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from mortal.cli.arguments import AsJson, RunId, RunsDir, Volume, split_run
from mortal.cli.show import stages_of_runs, statuses_of, with_stages
from mortal.terminal.output import print_json, say
from mortal_steps.report.printable import printable
from mortal_steps.runs.argument import names_recipe

if TYPE_CHECKING:  # help needs no run
    from collections.abc import Sequence

    from mortal_steps.report.status import RunStatus
    from mortal_steps.runs.run import Run
    from mortal_steps.store import RunStore

LOOK_EVERY_S = 1.0
LAST_LINES_S = 2.0
"""`tail` looks at its files once a second."""
OfStep = Annotated[
    int | None,
    typer.Option(
        "--step", min=1, metavar="STEP", help="Train step, counted from 1. Default: the last."
    ),
]


def status(
    runs_dir: RunsDir = Path("runs"),
    volume: Volume = None,
    once: Annotated[
        bool, typer.Option("--once", help="Print once and exit, as in a pipe.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Watch how runs and recipes stand: step, reward and ETA; the stages of each recipe.

    The reward is the mean over a run's last 20 steps; held-out is the reward of
    its last evaluation. If no process drives a run, the command that continues it
    is shown; if a run waits for tools, which these are and since when. For runs
    on a Modal Volume, ETA and what is waited for are known only on the machine
    where the flow runs.
    """
    from mortal.terminal import listing

    def look() -> list[RunStatus]:
        found = statuses_of(None, runs_dir, volume)
        return sorted(found, key=lambda run: (run.status != "running", -run.updated_at))

    def recipes() -> list[str]:
        from mortal.terminal.recipes import recipe_lines
        from mortal_steps.recipes.record import read_all

        return recipe_lines(read_all(runs_dir)) if volume is None else []

    if as_json:
        print_json(with_stages(look(), {} if volume is not None else stages_of_runs(runs_dir)))
    elif once or not sys.stdout.isatty():
        listing.print_statuses(look(), recipes())
    else:
        every_s = listing.LOOK_EVERY_S if volume is None else listing.LOOK_THERE_EVERY_S
        listing.watch(look, every_s, recipes)


def samples(
    run_id: RunId,
    runs_dir: RunsDir = Path("runs"),
    step: OfStep = None,
    count: Annotated[
        int, typer.Option("--number", "-n", min=1, metavar="N", help="How many of each kind.")
    ] = 3,
    best: Annotated[bool, typer.Option("--best", help="Those with the highest reward.")] = False,
    worst: Annotated[bool, typer.Option("--worst", help="Those with the lowest reward.")] = False,
    masked: Annotated[
        bool, typer.Option("--masked", help="Those without a reward, because a function failed.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Show completions of a step with their prompts and scores.

    Without --best, --worst or --masked: some of each.
    """
    from mortal.terminal.samples import show_samples
    from mortal_steps.report.samples import KINDS, samples_of
    from mortal_steps.runs.run import find_run

    runs_dir, run_id = split_run(run_id, runs_dir)
    asked = {"best": best, "worst": worst, "masked": masked}
    wanted = [kind for kind in KINDS if asked.get(kind)] or list(KINDS)
    run = find_run(runs_dir, run_id)
    chosen = samples_of(run, count, step=step, kinds=wanted)
    if as_json:
        print_json(chosen)
    elif chosen:
        show_samples(chosen)
    elif run.info.prepared_rows is not None:
        typer.echo(f"run {run_id} learns from rows of a dataset: it samples nothing", err=True)
    else:
        typer.echo(f"none of the step's completions is {' or '.join(wanted)}", err=True)


def problems(
    run_id: RunId,
    runs_dir: RunsDir = Path("runs"),
    count: Annotated[
        int, typer.Option("--number", "-n", min=0, metavar="N", help="How many lines.")
    ] = 20,
    only: Annotated[
        str | None,
        typer.Option(
            "--only",
            metavar="VERDICT",
            help="solved (at each visit), unsolved (at none), worse (than they were), between, or "
            "never (a reward).",
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Show how often each problem of a run was solved, over its steps.

    Those with the lowest rewards come first. What is solved or never solved at each visit teaches
    nothing: docs/selection.md says what to do about it.
    """
    from mortal.terminal.problems import show_problems
    from mortal_steps.report.problems import VERDICTS, problems_of
    from mortal_steps.runs.run import find_run

    if only is not None and only not in VERDICTS:
        raise typer.BadParameter(f"{only!r} is none of {', '.join(VERDICTS)}")
    runs_dir, run_id = split_run(run_id, runs_dir)
    found = problems_of(find_run(runs_dir, run_id))
    chosen = [each for each in found.problems if only in (None, each.verdict)]
    chosen.sort(key=lambda each: sum(each.rates) / max(len(each.rates), 1))
    if as_json:
        print_json({**dataclasses.asdict(found), "problems": chosen})
    else:
        show_problems(found, chosen[:count])


def logs(
    run_id: RunId,
    runs_dir: RunsDir = Path("runs"),
    role: Annotated[
        str | None,
        typer.Option(
            "--role",
            metavar="ROLE",
            help="actor, rollout or reward: the logs of these workers. Default: that of the flow.",
        ),
    ] = None,
    worker: Annotated[
        int | None,
        typer.Option("--worker", min=0, metavar="N", help="Only the worker with this number."),
    ] = None,
    follow: Annotated[
        bool, typer.Option("--follow", "-f", help="Keep printing until the run ends, or Ctrl-C.")
    ] = False,
    count: Annotated[
        int,
        typer.Option(
            "--lines", "-n", min=0, metavar="N", help="Begin with the last N lines of each log."
        ),
    ] = 40,
) -> None:
    """Print the log of a run's flow, or those of its workers.

    For a recipe, print what the processes of its stages have printed.
    """
    from mortal_steps.recipes.record import find_recipe
    from mortal_steps.runs.lease import is_driven
    from mortal_steps.runs.run import find_run

    runs_dir, run_id = split_run(run_id, runs_dir)
    _check_role(role, worker)
    if names_recipe(runs_dir, run_id) and role is None:
        store = find_recipe(runs_dir, run_id).store
        found = sorted(store.path("logs").glob("*.log"), key=lambda path: path.stat().st_mtime)
    else:
        run = find_run(runs_dir, run_id)
        store, found = run.store, _find_logs(run, role, worker)
    if not found:
        say(f"no stage of recipe {run_id} has printed anything")
        return
    _print_ends(found, count, followed=store if follow and is_driven(store) else None)


def _print_ends(files: Sequence[Path], count: int, *, followed: RunStore | None) -> None:
    """Print the last lines of files and, where what writes them is followed, those that come until
    it ends."""
    tail = ["tail", "-n", str(count), *(["-F"] if followed is not None else [])]
    with subprocess.Popen(
        [*tail, *map(str, files)],
        stdout=subprocess.PIPE,
        encoding="utf-8",
        errors="replace",
    ) as process:
        if followed is not None:
            threading.Thread(target=_end_with_run, args=(process, followed), daemon=True).start()
        assert process.stdout is not None
        try:
            with contextlib.suppress(KeyboardInterrupt):
                for line in process.stdout:
                    typer.echo(printable(line.rstrip("\r\n")))
        finally:  # also where nobody reads on, as behind `| head`
            process.terminate()
    if process.returncode > 0:
        raise typer.Exit(process.returncode)


def _end_with_run(process: subprocess.Popen[str], store: RunStore) -> None:
    """End `tail` once nobody drives the run any more and the last lines may be printed."""
    from mortal_steps.runs.lease import is_driven

    while is_driven(store):
        time.sleep(LOOK_EVERY_S)
    time.sleep(LAST_LINES_S)
    process.terminate()


def _find_logs(run: Run, role: str | None, worker: int | None) -> list[Path]:
    """Return the log files of a role's workers, or the flow's own.

    Raises `DataError` where there is none.
    """
    from mortal_steps.errors import DataError
    from mortal_steps.places.table import PLACES
    from mortal_steps.runs.logs import FLOW_LOG

    folder = run.store.path("logs")
    pattern = FLOW_LOG if role is None else f"{role}-{'*' if worker is None else worker}.log"
    found = sorted(folder.glob(pattern))
    if not found:
        names = ", ".join(sorted(path.stem for path in folder.glob("*.log"))) or "none"
        is_here = PLACES.entry(run.settings()["compute"]["backend"]).shares_files
        elsewhere = "" if is_here else "; workers on Modal log there: `modal app logs`"
        raise DataError(f"there is no {pattern} in {folder} (logs there: {names}){elsewhere}")
    return found


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

    from mortal_steps.errors import ConfigError, StoreError
    from mortal_steps.orchestration.tracking import catch_up, check_trackers, with_logging
    from mortal_steps.runs.run import find_run

    runs_dir, run_id = split_run(run_id, runs_dir)
    run = find_run(runs_dir, run_id)
    names = tuple(to or run.config.logging.report_to)
    if not names:
        raise ConfigError(f"run {run_id} has no logging.report_to; name a tracker with --to")
    check_trackers(names, "--to" if to else "logging.report_to")
    chosen = with_logging(run, report_to=names, **({"project": project} if project else {}))
    for reached in asyncio.run(catch_up(chosen, follows=follow)):
        if reached.error:
            raise StoreError(f"{reached.name}: {reached.error}")
        say(f"{reached.name} has the run up to step {max(0, reached.step)}")


def _check_role(role: str | None, worker: int | None) -> None:
    from mortal_steps.compute.base import ROLES

    if role is not None and role not in ROLES:
        raise typer.BadParameter(f"--role {role!r}: the roles are {', '.join(ROLES)}")
    if worker is not None and role is None:
        raise typer.BadParameter(f"--worker {worker} needs --role: {', '.join(ROLES)}")
