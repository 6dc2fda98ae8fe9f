"""`mortal logs`: what a run's processes have printed, and what they print from now on."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import typer

from mortal_steps.errors import DataError
from mortal_steps.report.printable import printable
from mortal_steps.runs.logs import FLOW_LOG
from mortal_steps.runs.run import Run

LOOK_EVERY_S = 0.5


def find_logs(run: Run, role: str | None, worker: int | None) -> list[Path]:
    """Return the log files of a role's workers, or the flow's own.

    Raises `DataError` where there is none.
    """
    folder = run.store.path("logs")
    there = sorted(folder.glob("*.log"))
    if role is None:
        found = [path for path in there if path.name == FLOW_LOG]
    else:
        found = [
            path
            for path in there
            if path.stem.rpartition("-")[0] == role
            and (worker is None or path.stem == f"{role}-{worker}")
        ]
    if not found:
        who = "the flow" if role is None else role if worker is None else f"{role} {worker}"
        names = ", ".join(path.stem for path in there) or "none"
        on_modal = run.settings()["compute"]["backend"] == "modal"
        elsewhere = "; workers on Modal log there: `modal app logs`" if on_modal else ""
        raise DataError(f"there is no log of {who} in {folder} (logs there: {names}){elsewhere}")
    return found


def print_logs(paths: Sequence[Path], num_lines: int, goes_on: Callable[[], bool] | None) -> None:
    """Print the last lines of each file; with `goes_on` also what is appended, as long as it says
    so."""
    names = {path: f"{path.stem} | " if len(paths) > 1 else "" for path in paths}
    tails = {path: _Tail(path) for path in paths}
    for path in paths:
        for line in tails[path].last(num_lines):
            typer.echo(names[path] + line)
    while goes_on is not None:
        last_look = not goes_on()
        for path in paths:
            for line in tails[path].new():
                typer.echo(names[path] + line)
        if last_look:
            return
        time.sleep(LOOK_EVERY_S)


class _Tail:
    """A file that grows, or begins anew when it was too long."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._at = 0
        self._rest = b""
        """A line that has no end yet."""

    def last(self, count: int) -> list[str]:
        """Read the last lines that are whole."""
        lines = list(self.new())
        return lines[-count:] if count else []

    def new(self) -> Iterator[str]:
        """Yield what was appended since the last look, as whole lines."""
        with self._path.open("rb") as file:
            if file.seek(0, os.SEEK_END) < self._at:
                self._at, self._rest = 0, b""
            file.seek(self._at)
            content = self._rest + file.read()
            self._at = file.tell()
        *whole, self._rest = content.split(b"\n")
        for line in whole:
            yield printable(line.decode(errors="replace").rstrip("\r"))
