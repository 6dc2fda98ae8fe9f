"""`mortal list-checkpoints`: a line per checkpoint."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import typer

from mortal.terminal.console import console
from mortal.terminal.listing import in_columns
from mortal_steps.report.printable import printable
from mortal_steps.report.summary import RunSummary

COLUMNS = ("run", "step", "best")


def print_checkpoints(summaries: Sequence[RunSummary], *, as_json: bool) -> None:
    """Those of each run, oldest first; in a pipe as tab-separated values."""
    found = [row for run in summaries for row in _rows(run)]
    if as_json:
        typer.echo(json.dumps(found, indent=1))
        return
    if not found:
        typer.echo("no checkpoints", err=True)
        return
    lines = [COLUMNS, *(tuple(map(_cell, row.values())) for row in found)]
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
