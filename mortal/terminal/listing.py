"""`mortal runs`, `list-checkpoints`: lines for people, tab-separated values for programs."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from datetime import datetime
from typing import Any

import typer
from rich.text import Text

from mortal.terminal.console import console
from mortal_steps.report.printable import printable
from mortal_steps.report.summary import RunSummary
from mortal_steps.report.units import duration, number

COLUMNS = ["run", "status", "step", "max_steps", "began", "updated", "reward", "held_out", "took_s"]
"""Of the tab-separated list."""
CHECKPOINT_COLUMNS = ("run", "step", "best")
HEADING = ("run", "status", "step", "age", "took", "reward", "held-out")


def print_runs(summaries: Sequence[RunSummary]) -> None:
    """Print one line per run; no id is ever cut, however narrow the terminal is."""
    if not console.is_terminal:
        _print_values(summaries)
        return
    rows = [HEADING]
    for run in summaries:
        rows.append(
            (
                printable(run.run_id),
                run.status,
                f"{run.step}/{run.max_steps}",
                duration(time.time() - run.created_at),
                duration(run.updated_at - run.created_at),
                number(run.reward_last20),
                number(run.eval.get("reward")),
            )
        )
    for place, line in enumerate(in_columns(rows)):
        console.print(Text(line, style="" if place else "bold"))


def in_columns(rows: Sequence[Sequence[str]]) -> list[str]:
    """Return a line for each row; no cell is ever cut."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return [
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in rows
    ]


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
            f"{max(0.0, run.updated_at - run.created_at):.0f}",
        )
        typer.echo("\t".join(values))


def moment(seconds: float) -> str:
    """Return a time of day here, with its offset, such as 2026-01-31T23:59:59+01:00."""
    return datetime.fromtimestamp(seconds).astimezone().isoformat(timespec="seconds")


def print_checkpoints(summaries: Sequence[RunSummary], *, as_json: bool) -> None:
    """Print the checkpoints of each run, oldest first; in a pipe as tab-separated values."""
    found = [row for run in summaries for row in _rows(run)]
    if as_json:
        typer.echo(json.dumps(found, indent=1))
        return
    if not found:
        typer.echo("no checkpoints", err=True)
        return
    lines = [CHECKPOINT_COLUMNS, *(tuple(map(_cell, row.values())) for row in found)]
    for line in in_columns(lines) if console.is_terminal else map("\t".join, lines):
        typer.echo(line)


def _rows(run: RunSummary) -> list[dict[str, Any]]:
    return [
        {"run": run.run_id, "step": step, "best": step == run.best_step} for step in run.checkpoints
    ]


def _cell(value: Any) -> str:
    if isinstance(value, bool):
        return "best" if value else ""
    return printable(str(value))
