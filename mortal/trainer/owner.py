"""Starts the process that drives a run, waits for it, and raises the error that it raised."""

import contextlib
import os
import pickle
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from typing import IO, Any

from mortal_steps.errors import WorkerLostError
from mortal_steps.system.asked import AskedProcess
from mortal_steps.system.frames import Request

SAVES_WITHIN_S = 3600.0
"""Seconds that a run whose owner has ended may take to save its state."""
KERNEL = "ZMQInteractiveShell"
"""The class of IPython's shell in a Jupyter kernel. On a terminal, IPython uses another class."""
COLORS = ("FORCE_COLOR", "CLICOLOR_FORCE")
"""Environment variables that a Jupyter kernel sets for programs that print into it directly."""


def perform(action: str, **arguments: Any) -> Any:
    """Perform an action of mortal/trainer/process.py in a new process, and wait for it. Return the
    action's return value.

    Raises the error that the action raised, with the same class and message, and
    `KeyboardInterrupt` after a Ctrl-C has stopped the run in order. The process receives a Ctrl-C
    once, from here. If this process ends in any way, the other one stops in order, too.
    """
    shown = in_notebook()
    process = AskedProcess(
        "mortal.trainer.process",
        output=subprocess.PIPE if shown else None,
        env={n: v for n, v in os.environ.items() if n not in COLORS} if shown else None,
        grace_s=SAVES_WITHIN_S,
    )
    assert process.stdin is not None
    with process, process.stdin:  # whose end tells the process that its owner has ended
        process.ask(pickle.dumps(Request(number=0, method=action, payload=arguments)))
        with _printing(process):
            interrupted = _wait(process)
    answer = process.answer()
    if answer is None and not interrupted:
        raise WorkerLostError(
            f"the process that did `{action}` ended without an error message (exit code "
            f"{process.returncode}); continue the run with train(resume=True)"
        )
    # Without an answer it was interrupted more than once.
    if answer is None or interrupted or isinstance(answer.error, KeyboardInterrupt):
        raise KeyboardInterrupt
    if answer.error is not None:
        raise answer.error
    return answer.value


def in_notebook() -> bool:
    """Return whether a Jupyter kernel runs this process."""
    ipython = sys.modules.get("IPython")
    shell = ipython.get_ipython() if ipython else None
    return type(shell).__name__ == KERNEL


@contextlib.contextmanager
def _printing(process: subprocess.Popen[bytes]) -> Iterator[None]:
    """Print in a notebook's cell what the process prints; elsewhere it shares this one's output."""
    if process.stdout is None:
        yield
        return
    thread = threading.Thread(target=_print_lines, args=(process.stdout,), daemon=True)
    thread.start()
    try:
        yield
    finally:
        thread.join()


def _print_lines(lines: IO[bytes]) -> None:
    for line in lines:
        print(line.decode(errors="replace"), end="", flush=True)  # noqa: T201 - in the cell


def _wait(process: subprocess.Popen[bytes]) -> bool:
    """Wait for the process's end; returns whether that was interrupted. Interrupts are passed on:
    the first lets the run save its state, the second ends it at once."""
    interrupted = False
    while True:
        try:
            process.wait()
            return interrupted
        except KeyboardInterrupt:
            interrupted = True
            process.send_signal(signal.SIGINT)
