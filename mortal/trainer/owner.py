"""The owner of the process that drives a run: starts it, waits, and raises what it raised."""

from __future__ import annotations

import os
import pickle
import signal
import subprocess
import sys
from typing import Any

from mortal.trainer.messages import Answer, Request
from mortal_steps.errors import WorkerLostError


def perform(request: Request) -> Any:
    """Let a process of its own do what is asked, and wait for it.

    Raises what it raised, with the same class and message, and `KeyboardInterrupt` after the run
    was stopped in order by one. The process has a session of its own, so that a Ctrl-C reaches it
    once, from here; when this process ends in any way, the other stops in order, too.
    """
    reads, writes = os.pipe()
    process = subprocess.Popen(
        [sys.executable, "-P", "-m", "mortal.trainer", str(writes)],
        stdin=subprocess.PIPE,
        pass_fds=(writes,),
        start_new_session=True,
    )
    os.close(writes)
    assert process.stdin is not None
    with open(reads, "rb") as answers, process, process.stdin:
        process.stdin.write(pickle.dumps(request))
        process.stdin.flush()
        interrupted = _wait(process)
        content = answers.read()
    if not content:
        raise WorkerLostError(
            f"the process that drove the run ended without a word (exit code "
            f"{process.returncode}); it goes on with train(resume=True)"
        )
    answer: Answer = pickle.loads(content)
    if interrupted or isinstance(answer.error, KeyboardInterrupt):
        raise KeyboardInterrupt
    if answer.error is not None:
        raise answer.error
    return answer.value


def _wait(process: subprocess.Popen[bytes]) -> bool:
    """Wait for the end of the process; whether somebody interrupted that. Each interrupt is handed
    on: the first one lets the run save its state, the second ends it at once."""
    interrupted = False
    while True:
        try:
            process.wait()
            return interrupted
        except KeyboardInterrupt:
            interrupted = True
            process.send_signal(signal.SIGINT)
