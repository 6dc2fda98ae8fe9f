"""`mortal promote`, `rollback` and `models`: comparisons and decisions in a terminal."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Sequence

import typer

from mortal.terminal.console import print_columns
from mortal.terminal.output import say
from mortal_steps.errors import StoreError
from mortal_steps.promotion.comparison import Comparison, metric_rows
from mortal_steps.registry.registry import Decision, Registry
from mortal_steps.report.units import moment

NAMES = ("name", "run", "since", "by", "path")
DECISIONS = ("when", "decision", "run", "by", "why")


def show_comparison(comparison: Comparison) -> None:
    """A line for each metric."""
    other = "incumbent" if comparison.incumbent else "before training"
    print_columns([("", "candidate", other, "difference"), *metric_rows(comparison)])
    say(f"{comparison.num_problems:,} held-out problems")


def ask(name: str) -> bool:
    """Whether the person at the terminal wants the model in production."""
    return typer.confirm(f"Put this model in production as {name}?")


def show_decision(decision: Decision, registry: Registry) -> None:
    """What was decided, and where the model in use is."""
    said = f"{decision.version.id}: {decision.action}"
    say(f"{said} ({decision.why})" if decision.action == "refused" else said)
    if registry.link.is_symlink():
        say(f"in production: {registry.link} -> {registry.link.readlink()}")


def show_names(registries: Sequence[Registry], *, as_json: bool) -> None:
    """A line for each name that has a model in production."""
    rows = []
    for registry in registries:
        moved = [made for made in registry.history() if made.action != "refused"]
        if moved:
            last = moved[-1]
            run, since = last.version.run_id, moment(last.at)
            rows.append((registry.name, run, since, last.by, str(registry.link)))
    if as_json:
        typer.echo(json.dumps([dict(zip(NAMES, row, strict=True)) for row in rows], indent=1))
    elif rows:
        print_columns([NAMES, *rows])
    else:
        typer.echo("no model is in production; `mortal promote RUN` puts one there", err=True)


def show_history(registry: Registry, *, as_json: bool) -> None:
    """A line for each decision about a name, oldest first; raises `StoreError` if there is none."""
    history = registry.history()
    if not history:
        raise StoreError(f"nothing was decided about {registry.name} in {registry.store.root}")
    if as_json:
        typer.echo(json.dumps([dataclasses.asdict(made) for made in history], indent=1))
        return
    rows = [(moment(m.at), m.action, m.version.run_id, m.by, m.why) for m in history]
    print_columns([DECISIONS, *rows])
