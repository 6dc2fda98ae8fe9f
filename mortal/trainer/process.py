"""The process that drives a run for a `MortalTrainer`: `python -m mortal.trainer`.

It reads a pickled `Request` from its standard input, and writes a pickled `Answer` to a descriptor
of its own. The end of its input means that its owner has ended, and has the effect of a Ctrl-C.
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
    """Perform the request. The exit code is 0 whenever an answer was written."""
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
    except (Exception, KeyboardInterrupt) as error:  # noqa: BLE001 - the boundary: all are sent on
        if not isinstance(error, MortalError):
            error.add_note(traceback.format_exc())  # a traceback itself cannot be pickled
        answer = Answer(error=error)
    sys.stdout.flush()
    sys.stderr.flush()
    with contextlib.suppress(BrokenPipeError), open(answers, "wb") as out:  # the owner has ended
        out.write(_pickled(answer))


def _perform(request: Request) -> Any:
    from mortal.terminal.output import warn_in_plain_lines
    from mortal.trainer import actions

    warn_in_plain_lines()
    return getattr(actions, request.action)(request.config, **request.options)


def _watch_owner() -> None:
    """Interrupt this process when its input ends.

    It reads the descriptor directly, because a read from `sys.stdin` holds a lock that an ending
    interpreter would wait for.
    """
    while os.read(0, 1):
        pass
    let_go_of_terminals()
    os.kill(os.getpid(), signal.SIGINT)


def _pickled(answer: Answer) -> bytes:
    """The answer as a pickle. An error that cannot be pickled is replaced by a `RuntimeError` with
    its traceback as text."""
    try:
        content = pickle.dumps(answer)
        pickle.loads(content)
    except Exception:  # noqa: BLE001 - pickling somebody's exception may fail in any way
        assert answer.error is not None
        told = "".join(traceback.format_exception(answer.error))
        return pickle.dumps(Answer(error=RuntimeError(told)))
    return content
