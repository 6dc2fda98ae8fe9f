"""A process that is asked one thing, and answers once.

    process = AskedProcess("mortal.trainer.process")      the outside
    process.ask(pickle.dumps(request))
    process.wait()
    process.answer()

    answer_once(perform)                                  what that module calls, inside

It is a `Child`, so it ends with its owner. The request comes by the standard input, the answer goes
by a descriptor of its own, so that whatever the process prints is no part of it.
"""

import contextlib
import os
import pickle
import signal
import subprocess
import sys
import threading
import traceback
from collections.abc import Callable, Iterator, Mapping
from typing import IO, Any

from mortal_steps.errors import MortalError
from mortal_steps.system.child import Child
from mortal_steps.system.frames import Answer

STOPPING = (signal.SIGINT, signal.SIGTERM)


class AskedProcess(Child):
    """The process of a module that calls `answer_once`."""

    def __init__(
        self,
        module: str,
        *,
        env: Mapping[str, str] | None = None,
        output: int | IO[bytes] | None = None,
        grace_s: float = 0.0,
    ) -> None:
        """Begin the process; the other parameters are those of `Child`. Signals are held back from
        it until it has read the request: one that came while it imports would end it without an
        answer."""
        reads, writes = os.pipe()
        try:
            with _holding_back_signals():
                super().__init__(
                    [sys.executable, "-P", "-m", module, str(writes)],
                    stdin=subprocess.PIPE,
                    output=output,
                    pass_fds=(writes,),
                    env=env,
                    grace_s=grace_s,
                )
        except BaseException:
            os.close(reads)
            raise
        finally:
            os.close(writes)
        self._content = b""
        # Beside whatever the owner does: a long answer does not fit into the pipe.
        self._reading = threading.Thread(target=self._read, args=(reads,), daemon=True)
        self._reading.start()

    def ask(self, request: bytes) -> None:
        """Send the request, a pickle. The process's input stays open."""
        assert self.stdin is not None
        with contextlib.suppress(BrokenPipeError):  # it has ended before it could read
            self.stdin.write(request)
            self.stdin.flush()

    def answer(self) -> Answer | None:
        """Return what the process has answered before it ended; None if it was killed before, or
        while it answered."""
        self._reading.join()
        try:
            found: Answer = pickle.loads(self._content)
        except (EOFError, pickle.UnpicklingError):
            return None
        return found

    def _read(self, descriptor: int) -> None:
        with open(descriptor, "rb") as answers:
            self._content = answers.read()


def answer_once(perform: Callable[[Any], Any]) -> None:
    """Answer the request with what `perform` returns or raises. SIGTERM is a Ctrl-C."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGTERM, lambda number, frame: signal.raise_signal(signal.SIGINT))
    answers = int(sys.argv[1])
    os.set_inheritable(answers, False)
    try:
        request = pickle.load(sys.stdin.buffer)
    except EOFError:  # the owner has ended before it asked
        return
    try:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, STOPPING)
        answer = Answer(number=0, value=perform(request))
    except (Exception, KeyboardInterrupt) as error:  # noqa: BLE001 - the boundary: all are sent on
        if not isinstance(error, MortalError):
            error.add_note(traceback.format_exc())  # a traceback itself cannot be pickled
        answer = Answer(number=0, error=error)
    sys.stdout.flush()
    sys.stderr.flush()
    with contextlib.suppress(BrokenPipeError), open(answers, "wb") as out:  # the owner has ended
        out.write(_pickled(answer))


def _pickled(answer: Answer) -> bytes:
    """Pickle the answer; an error that cannot be pickled becomes a `RuntimeError` with its text."""
    try:
        content = pickle.dumps(answer)
        pickle.loads(content)
    except Exception:  # noqa: BLE001 - pickling somebody's exception may fail in any way
        assert answer.error is not None
        trace = "".join(traceback.format_exception(answer.error))
        return pickle.dumps(Answer(number=0, error=RuntimeError(trace)))
    return content


@contextlib.contextmanager
def _holding_back_signals() -> Iterator[None]:
    before = signal.pthread_sigmask(signal.SIG_BLOCK, STOPPING)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
