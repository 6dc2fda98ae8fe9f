"""Starts the process that drives a run, waits for it, and raises the error that it raised."""

from __future__ import annotations

import contextlib
import os
import pickle
import signal
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

from mortal.trainer.messages import IN_NOTEBOOK, Answer, Request
from mortal.trainer.notebook import LOOK_EVERY_S, Cell, in_notebook
from mortal_steps.errors import WorkerLostError
from mortal_steps.system.child import Child

SAVES_WITHIN_S = 3600.0
"""Seconds that a run whose owner has ended may take to save its state."""
COLORS = ("FORCE_COLOR", "CLICOLOR_FORCE")
"""Environment variables that a Jupyter kernel sets for programs that print into it directly."""


def perform(request: Request) -> Any:
    """Perform a request in a new process, and wait for it. Returns the action's return value.

    Raises the error that the action raised, with the same class and message, and
    `KeyboardInterrupt` after a Ctrl-C has stopped the run in order. The process receives a Ctrl-C
    once, from here. If this process ends in any way, the other one stops in order, too.
    """
    reads, writes = os.pipe()
    shown = in_notebook()
    with _holding_back_interrupts():
        process = Child(
            [sys.executable, "-P", "-m", "mortal.trainer", str(writes)],
            stdin=subprocess.PIPE,
            output=subprocess.PIPE if shown else None,
            pass_fds=(writes,),
            env=_in_notebook() if shown else None,
            grace_s=SAVES_WITHIN_S,
        )
        os.close(writes)
    assert process.stdin is not None
    with open(reads, "rb") as answers, process, process.stdin:
        with contextlib.suppress(BrokenPipeError):  # the process ended before it read the request
            process.stdin.write(pickle.dumps(request))
            process.stdin.flush()
        with _watching(process, request, shown) as cell:
            interrupted = _wait(process, cell)
        content = answers.read()
    if not content and interrupted:  # more than once, so that it ended without a word
        raise KeyboardInterrupt
    if not content:
        raise WorkerLostError(
            f"the process that did `{request.action}` ended without an error message (exit code "
            f"{process.returncode}); continue the run with train(resume=True)"
        )
    answer: Answer = pickle.loads(content)
    if interrupted or isinstance(answer.error, KeyboardInterrupt):
        raise KeyboardInterrupt
    if answer.error is not None:
        raise answer.error
    return answer.value


@contextlib.contextmanager
def _holding_back_interrupts() -> Iterator[None]:
    """A process that is started meanwhile gets no Ctrl-C before it asks for one (process.py): one
    that came while it imports would end it with a traceback, and without an answer."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _in_notebook() -> dict[str, str]:
    """The environment of a process whose output a notebook prints. Prefect logs only warnings
    there, because the bar shows the progress."""
    kept = {name: value for name, value in os.environ.items() if name not in COLORS}
    return {"PREFECT_LOGGING_HANDLERS_CONSOLE_LEVEL": "WARNING", **kept, IN_NOTEBOOK: "1"}


@contextlib.contextmanager
def _watching(
    process: subprocess.Popen[bytes], request: Request, shown: bool
) -> Iterator[Cell | None]:
    if not shown:
        yield None
        return
    with Cell(process, request.config) as cell:
        yield cell


def _wait(process: subprocess.Popen[bytes], cell: Cell | None) -> bool:
    """Wait until the process ends. Returns whether the wait was interrupted.

    Each interrupt is passed on to the process: the first one lets the run save its state, and the
    second one ends it at once.
    """
    interrupted = False
    while True:
        try:
            process.wait(LOOK_EVERY_S if cell else None)
            return interrupted
        except subprocess.TimeoutExpired:
            assert cell is not None
            cell.look()
        except KeyboardInterrupt:
            interrupted = True
            process.send_signal(signal.SIGINT)
