"""`mortal runs`, `status`, `list-checkpoints`: a line for each run."""

import time
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType

import typer
from rich.console import Group
from rich.live import Live
from rich.text import Text

from mortal.terminal.console import console, in_columns, print_columns
from mortal.terminal.output import print_json
from mortal_steps.report.printable import printable
from mortal_steps.report.status import RunStatus
from mortal_steps.report.units import clock, duration, number

HEADING = ("run", "status", "step", "age", "took", "reward", "held-out")
STATUS_HEADING = ("run", "status", "step", "reward", "held-out", "s/step", "when")
CHECKPOINT_HEADING = ("run", "step", "best")
LOOK_EVERY_S = 1.0
LOOK_THERE_EVERY_S = 10.0
"""At runs on a Volume: each look downloads their logs."""
FEWEST_SHOWN = 3


def print_runs(
    statuses: Sequence[RunStatus], stages: Mapping[str, tuple[str, str]] = MappingProxyType({})
) -> None:
    """Print one line per run; no id is ever cut, however narrow the terminal is. `stages`: recipe
    and stage of runs that belong to one, by their ids."""
    rows = [
        (
            run.run_id,
            run.status,
            f"{run.step}/{run.max_steps}",
            duration(time.time() - run.created_at),
            duration(run.updated_at - run.created_at),
            _merit(run.reward, run.loss),
            _merit(run.held_out, run.held_out_loss),
            *(["/".join(stages.get(run.run_id, ()))] if stages else []),
        )
        for run in statuses
    ]
    print_columns([(*HEADING, *(["stage"] if stages else [])), *rows])


def _merit(reward: float | None, loss: float | None) -> str:
    """Return a reward or, where rows are learned and there is none, the loss."""
    return number(reward) if loss is None else f"loss {number(loss)}"


def print_checkpoints(statuses: Sequence[RunStatus], *, as_json: bool) -> None:
    found = [
        (run.run_id, step, step == run.best_step) for run in statuses for step in run.checkpoints
    ]
    if as_json:
        print_json([dict(zip(CHECKPOINT_HEADING, row, strict=True)) for row in found])
    elif found:
        lines = [(run_id, str(step), "best" if best else "") for run_id, step, best in found]
        print_columns([CHECKPOINT_HEADING, *lines])
    else:
        typer.echo("no checkpoints", err=True)


def print_statuses(statuses: Sequence[RunStatus], recipes: Sequence[str] = ()) -> None:
    """Print a line for each run, below the lines of recipes."""
    for line in recipes:
        console.print(line)
    if statuses or not recipes:
        console.print(_picture(statuses, most=None))


def watch(
    look: Callable[[], Sequence[RunStatus]],
    every_s: float = LOOK_EVERY_S,
    recipes: Callable[[], Sequence[str]] = tuple,
) -> None:
    """Look again and again until Ctrl-C."""
    try:
        with Live(console=console, screen=True, auto_refresh=False) as live:
            while True:
                title = Text(time.strftime("%H:%M:%S") + "  (Ctrl-C ends this view)\n", style="dim")
                above = [Text(printable(line)) for line in recipes()]
                room = max(FEWEST_SHOWN, console.height - 5 - len(above))
                live.update(Group(title, *above, _picture(look(), most=room)), refresh=True)
                time.sleep(every_s)
    except KeyboardInterrupt:
        return


def _picture(statuses: Sequence[RunStatus], *, most: int | None) -> Text:
    """Return a line for each run, and below it what it waits for; `most` lines."""
    if not statuses:
        return Text("no runs here yet")
    heading, *lines = in_columns([STATUS_HEADING, *map(_cells, statuses)])
    shown = [(heading, "bold")]
    for number_of_run, (run, line) in enumerate(zip(statuses, lines, strict=True)):
        waits_for = filter(None, (run.waits_for, *run.waiting))
        of_run = [(line, ""), *((f"    {each}", "dim") for each in waits_for)]
        if most is not None and len(shown) + len(of_run) > most:
            shown.append((f"{len(statuses) - number_of_run} more: mortal runs", "dim"))
            break
        shown.extend(of_run)
    return Text("\n").join(Text(printable(line), style=style) for line, style in shown)


def _cells(run: RunStatus) -> tuple[str, ...]:
    return (
        run.run_id,
        run.status,
        f"{run.step}/{run.max_steps}",
        _merit(run.reward, run.loss),
        _merit(run.held_out, run.held_out_loss),
        "-" if run.pace_s is None else f"{run.pace_s:.2f}",
        f"{duration(time.time() - run.updated_at)} ago"
        if run.eta_s is None
        else f"{clock(run.eta_s)} left",
    )
