"""`mortal compare`: several runs beside each other."""

import json
from typing import Any

import typer

from mortal.terminal.console import print_columns
from mortal_steps.report.comparison import COUNTED, Compared, Comparison
from mortal_steps.report.units import money, number

VALUE_CHARS = 40


def show_comparison(found: Comparison) -> None:
    """Print what each run reached and used, and in what their configurations differ."""
    cost = any(run.dollars for run in found.runs)
    heading = (
        *("run", "status", "steps", "tokens", "hours", *(["dollars"] if cost else [])),
        *("training", "best", "at step", "last", f"at {_amount(found)}"),
    )
    lines = [
        (
            run.name,
            run.status,
            str(run.steps),
            f"{run.tokens:,}",
            "-" if run.hours is None else f"{run.hours:.3g}",
            *(["-" if run.dollars is None else money(run.dollars)] if cost else []),
            _merit(run),
            number(run.best),
            "-" if run.best_step is None else str(run.best_step),
            number(run.last),
            number(run.at_same),
        )
        for run in found.runs
    ]
    print_columns([heading, *lines], title=f"held out: {found.metric}")
    if not found.differences:
        typer.echo("their configurations decide the same numbers")
        return
    names = ("key", *(run.name for run in found.runs))
    rows = [(key, *map(_short, values)) for key, values in found.differences.items()]
    print_columns([names, *rows], title="in what their configurations differ")


def _merit(run: Compared) -> str:
    return (
        f"loss {number(-run.merit)}" if run.by_loss and run.merit is not None else number(run.merit)
    )


def _amount(found: Comparison) -> str:
    """Say how much all of the runs have used."""
    amount = f"{found.same:,}" if found.by in COUNTED else f"{found.same:.3g}"
    return f"{amount} {found.by}"


def _short(value: Any) -> str:
    text = value if isinstance(value, str) else json.dumps(value, default=str)
    return text if len(text) <= VALUE_CHARS else f"{text[: VALUE_CHARS - 1]}…"
