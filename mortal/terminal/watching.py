"""`mortal status`: how the runs stand, once or for as long as somebody looks."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

import typer
from rich.console import Group
from rich.live import Live
from rich.text import Text

from mortal.terminal.console import console
from mortal.terminal.listing import in_columns, moment
from mortal_steps.report.printable import printable
from mortal_steps.report.standing import RunStanding
from mortal_steps.report.units import clock, duration, number

LOOK_EVERY_S = 1.0
LOOK_THERE_EVERY_S = 10.0
"""At runs on a Volume: each look downloads their logs."""
FEWEST_SHOWN = 3
COLUMNS = [
    "run",
    "status",
    "step",
    "max_steps",
    "reward",
    "held_out",
    "s_per_step",
    "eta_s",
    "updated",
    "waits_for",
]
"""Of the tab-separated list."""
HEADING = ("run", "status", "step", "reward", "held-out", "s/step", "when")


def print_standings(standings: Sequence[RunStanding]) -> None:
    """Once: lines for people, tab-separated values in a pipe."""
    if console.is_terminal:
        console.print(_picture(standings, most=None))
        return
    typer.echo("\t".join(COLUMNS))
    for run in standings:
        values = (
            printable(run.run_id),
            run.status,
            str(run.step),
            str(run.max_steps),
            number(run.reward),
            number(run.held_out),
            "-" if run.pace_s is None else f"{run.pace_s:.3f}",
            "-" if run.eta_s is None else f"{run.eta_s:.0f}",
            moment(run.updated_at),
            run.waits_for or "-",
        )
        typer.echo("\t".join(values))


def watch(look: Callable[[], Sequence[RunStanding]], every_s: float = LOOK_EVERY_S) -> None:
    """Look again and again until Ctrl-C."""
    try:
        with Live(console=console, screen=True, auto_refresh=False) as live:
            while True:
                title = Text(time.strftime("%H:%M:%S") + "  (Ctrl-C ends this view)\n", style="dim")
                room = max(FEWEST_SHOWN, console.height - 5)
                live.update(Group(title, _picture(look(), most=room)), refresh=True)
                time.sleep(every_s)
    except KeyboardInterrupt:
        return


def _picture(standings: Sequence[RunStanding], *, most: int | None) -> Text:
    """Return a line for each run, and one below it that says what it waits for; `most` lines."""
    if not standings:
        return Text("no runs here yet")
    rows = [HEADING, *map(_cells, standings)]
    lines = [(line, "" if place else "bold") for place, line in enumerate(in_columns(rows))]
    shown: list[tuple[str, str]] = [lines[0]]
    for place, (run, line) in enumerate(zip(standings, lines[1:], strict=True)):
        told = [line, *([(f"    {run.waits_for}", "dim")] if run.waits_for else [])]
        if most is not None and len(shown) + len(told) > most:
            shown.append((f"{len(standings) - place} more: mortal runs", "dim"))
            break
        shown.extend(told)
    return Text("\n").join(Text(printable(line), style=style) for line, style in shown)


def _cells(run: RunStanding) -> tuple[str, ...]:
    return (
        run.run_id,
        run.status,
        f"{run.step}/{run.max_steps}",
        number(run.reward),
        number(run.held_out),
        "-" if run.pace_s is None else f"{run.pace_s:.2f}",
        _when(run),
    )


def _when(run: RunStanding) -> str:
    """Return when it will end, or when it last changed."""
    if run.eta_s is not None:
        return f"{clock(run.eta_s)} left"
    return f"{duration(time.time() - run.updated_at)} ago"
