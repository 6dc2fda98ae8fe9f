"""`mortal doctor`: checks everything that runs on this machine need, and prints a line for each
result."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import typer

from mortal.maintenance import Finding, ok, warning
from mortal.maintenance.history import look_at_database
from mortal.maintenance.machine import look_at_machine
from mortal.server.files import living_server, server_home
from mortal.server.select_server import prepare_client, server_of_profile
from mortal_steps.report.printable import printable

COLORS = {"ok": None, "warning": "yellow", "problem": "red"}


def examine(runs_dir: Path) -> bool:
    """Print the results; returns whether nothing prevents runs from working."""
    well = True
    for finding in _findings(runs_dir):
        line = f"  {finding.level:<8} {finding.what}: {finding.word}"
        typer.secho(printable(line), fg=COLORS[finding.level])
        well = well and finding.level != "problem"
    return well


def _findings(runs_dir: Path) -> Iterator[Finding]:
    yield from look_at_machine(runs_dir)
    configured, own = os.environ.get("PREFECT_API_URL"), living_server(server_home())
    own_url = own.api_url if own else None
    if configured in (None, "", own_url):
        yield from look_at_database()
    if not configured and (unused := server_of_profile()) is not None:
        yield warning("profile", unused)
    api_url = configured or own_url
    if api_url is None:
        yield ok("server", "none runs; `mortal train` and `mortal server` start one")
        return
    prepare_client()
    from mortal.maintenance.server import look_at_server  # Prefect reads its settings when imported

    named_by = "PREFECT_API_URL" if configured else "no PREFECT_API_URL: MORTAL's own server"
    yield ok("server", f"{api_url} is used ({named_by})")
    yield from look_at_server(api_url)
