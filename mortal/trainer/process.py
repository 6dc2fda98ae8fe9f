"""The process that drives a run for a `MortalTrainer`: `python -m mortal.trainer`.

It is told what to do by a pickle on its standard input, and answers by one on a descriptor of its
own. When its input ends, its owner has ended: that is Ctrl-C.
"""

from __future__ import annotations

import contextlib
import os
import pickle
import signal
import sys
import threading
import traceback
from typing import Any

from mortal.trainer.messages import Answer, Request
from mortal_steps.errors import MortalError
from mortal_steps.system.hangup import let_go_of_terminals


def main() -> None:
    """Do what is asked; exits with 0 whenever there is an answer."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGTERM, lambda number, frame: signal.raise_signal(signal.SIGINT))
    answers = int(sys.argv[1])
    os.set_inheritable(answers, False)
    try:
        request: Request = pickle.load(sys.stdin.buffer)
    except EOFError:  # the owner has ended before it asked
        return
    threading.Thread(target=_watch_owner, daemon=True).start()
    try:
        # The owner has begun this process with it held back: from here on it is answered.
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
        answer = Answer(value=_perform(request))
    except (Exception, KeyboardInterrupt) as error:  # noqa: BLE001 - the boundary: all of them travel
        if not isinstance(error, MortalError):
            error.add_note(traceback.format_exc())  # which does not travel itself
        answer = Answer(error=error)
    sys.stdout.flush()
    sys.stderr.flush()
    with contextlib.suppress(BrokenPipeError), open(answers, "wb") as out:  # the owner has ended
        out.write(_pickled(answer))


def _perform(request: Request) -> Any:
    from mortal.terminal.output import warn_in_plain_lines
    from mortal.trainer import actions
    from mortal_steps.report.spinner import spinner

    warn_in_plain_lines()
    try:
        return getattr(actions, request.action)(request.config, **request.options)
    finally:
        spinner.stop()


def _watch_owner() -> None:
    """Wait for the end of the input; the descriptor itself is read, which holds no lock that an
    ending interpreter would wait for."""
    while os.read(0, 1):
        pass
    let_go_of_terminals()
    os.kill(os.getpid(), signal.SIGINT)


def _pickled(answer: Answer) -> bytes:
    """An error that does not travel is told with its traceback."""
    try:
        content = pickle.dumps(answer)
        pickle.loads(content)
    except Exception:  # noqa: BLE001 - an exception of anybody's may fail to be pickled, in any way
        assert answer.error is not None
        told = "".join(traceback.format_exception(answer.error))
        return pickle.dumps(Answer(error=RuntimeError(told)))
    return content
