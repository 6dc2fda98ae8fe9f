"""The lines that `mortal` prints: what runs hold is shown as it is, and moves no cursor."""

import contextlib
import dataclasses
import io
import json
import logging
import os
import shutil
import sys
from collections.abc import Iterator
from typing import Any

import typer

from mortal.terminal.wrapping import at_words
from mortal_steps.report.printable import printable
from mortal_steps.system.streams import lead_nowhere

MOST_LINES = 12
"""Of an error message; a worker's holds the whole traceback of the other process."""
NAME_COLUMNS = 11
"""Of a line of the dry run."""
TRACEBACK = "Traceback (most recent call last):\n"
UNFORGIVING = ("strict", "surrogateescape")
"""What Python does with a character that an encoding does not have: raise an error."""
STREAMS = (("stdin", "r"), ("stdout", "w"), ("stderr", "w"))


def say(text: str) -> None:
    """Print a line for the user. That nobody reads it is no reason to end."""
    try:
        typer.echo(printable(text))
    except BrokenPipeError:
        lead_nowhere(sys.stdout)


def tell(text: str) -> None:
    """Print what was found of a run before it begins, below its name; on a terminal, long lines are
    broken at words."""
    name, found = text[:NAME_COLUMNS], text[NAME_COLUMNS:]
    if sys.stdout.isatty() and found:
        found = at_words(found, shutil.get_terminal_size().columns, indent=NAME_COLUMNS)
    say(name + found)


def print_json(value: Any) -> None:
    """Print JSON that every program reads: `null` for a number that is none, as of a loss that is
    not finite."""
    text = json.dumps(value, default=dataclasses.asdict)
    typer.echo(json.dumps(json.loads(text, parse_constant=lambda name: None), indent=1))


def complain(text: str) -> None:
    _complain(f"error: {printable(text)}", "red")


def _complain(text: str, colour: str) -> None:
    """In colour, unless the user wants none (https://no-color.org) or the terminal has none."""
    if sys.stderr.isatty():
        text = at_words(text, shutil.get_terminal_size().columns)
    if os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb":
        typer.echo(text, err=True)
    else:
        typer.secho(text, err=True, fg=colour)


def print_what_can_be_printed() -> None:
    """Print `?` for what the terminal's encoding lacks, rather than raise."""
    if isinstance(sys.stdout, io.TextIOWrapper) and sys.stdout.errors in UNFORGIVING:
        sys.stdout.reconfigure(errors="replace")


def shortened(text: str, whole: str) -> str:
    """Return the text without its traceback or its middle; `whole` says where all of it is."""
    reason, found, trace = text.rstrip().partition(f"\n{TRACEBACK}")
    if found:
        return f"{reason}\n    ({len(trace.splitlines()) + 1} lines of traceback: {whole})"
    lines = text.rstrip().splitlines()
    if len(lines) <= MOST_LINES:
        return text
    head, tail = lines[: MOST_LINES // 2], lines[-(MOST_LINES // 2 - 1) :]
    left_out = len(lines) - len(head) - len(tail)
    return "\n".join([*head, f"    ... {left_out} more lines: {whole}", *tail])


def warn_in_plain_lines() -> None:
    """Warnings that no logging set-up handles are a line each, as safe to print as all else."""
    logging.lastResort = _PlainWarnings(logging.WARNING)


class _PlainWarnings(logging.Handler):
    def emit(self, record: logging.LogRecord) -> None:
        _complain(f"warning: {printable(record.getMessage())}", "yellow")


def checking(text: str) -> None:
    """Say what is being looked at before a run begins."""
    say(f"{text} ...")


def waiting(text: str) -> None:
    """Say on a terminal what takes a while; standard output is for the result."""
    if sys.stderr.isatty():
        typer.echo(f"{printable(text)} ...", err=True)


def open_closed_streams() -> None:
    """Let each closed standard stream lead to nowhere: the next file opened would take its number,
    and get what is written to the stream."""
    for number, (name, mode) in enumerate(STREAMS):
        if getattr(sys, name) is not None or _is_open(number):
            continue
        nowhere = os.open(os.devnull, os.O_RDWR)
        if nowhere != number:
            os.dup2(nowhere, number)
            os.close(nowhere)
        os.set_inheritable(number, True)
        stream = os.fdopen(number, mode, encoding="utf-8", errors="replace", closefd=False)
        setattr(sys, name, stream)


@contextlib.contextmanager
def losing_what_cannot_be_printed() -> Iterator[None]:
    """Lose what is printed from here on if standard output is full or closed."""
    try:
        yield
        sys.stdout.flush()
    except (OSError, SystemExit):  # the latter is rich's word for a reader that is gone
        lead_nowhere(sys.stdout)


def _is_open(number: int) -> bool:
    try:
        os.fstat(number)
    except OSError:
        return False
    return True
