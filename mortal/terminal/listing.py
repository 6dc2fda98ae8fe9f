"""`mortal runs`: a line per run for people, tab-separated values for programs."""

from __future__ import annotations

import time
from collections.abc import Sequence
from datetime import datetime

import typer
from rich.text import Text

from mortal.terminal.output import console
from mortal_steps.report.printable import printable
from mortal_steps.report.summary import RunSummary
from mortal_steps.report.units import duration, number

COLUMNS = ("run", "status", "step", "max_steps", "began", "updated", "reward", "held_out")
"""Of the tab-separated list."""


def print_runs(summaries: Sequence[RunSummary]) -> None:
    """One line per run; no id is ever cut, however narrow the terminal is."""
    if not console.is_terminal:
        _print_values(summaries)
        return
    rows = [("run", "status", "step", "began", "reward", "held-out")]
    for run in summaries:
        rows.append(
            (
                printable(run.run_id),
                run.status,
                f"{run.step}/{run.max_steps}",
                f"{duration(time.time() - run.created_at)} ago",
                number(run.reward_last20),
                number(run.eval.get("reward")),
            )
        )
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for place, row in enumerate(rows):
        cells = [cell.ljust(width) for cell, width in zip(row, widths, strict=True)]
        console.print(Text("  ".join(cells).rstrip(), style="" if place else "bold"))


def _print_values(summaries: Sequence[RunSummary]) -> None:
    typer.echo("\t".join(COLUMNS))
    for run in summaries:
        values = (
            printable(run.run_id),
            run.status,
            str(run.step),
            str(run.max_steps),
            moment(run.created_at),
            moment(run.updated_at),
            number(run.reward_last20),
            number(run.eval.get("reward")),
        )
        typer.echo("\t".join(values))


def moment(seconds: float) -> str:
    """A time of day here, with its offset, such as 2026-01-31T23:59:59+01:00."""
    return datetime.fromtimestamp(seconds).astimezone().isoformat(timespec="seconds")
