"""The standard streams, where whoever started this process has closed them, or reads no more."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterator

from mortal_steps.system.streams import lead_nowhere

STREAMS = (("stdin", "r"), ("stdout", "w"), ("stderr", "w"))


def open_closed_streams() -> None:
    """Let each standard stream that is closed lead to nowhere.

    The next file that is opened would take its number otherwise, and whatever writes to the stream
    would write into a file of the run.
    """
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
    """What the block prints is lost where standard output is full, or nobody reads it any more; so
    is what is printed after that."""
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
