"""One lane, from its owner's side: a server in a box that runs one program after another.

The owner first sends `start_message`, and the server answers `ready`. For each program, the owner
then sends its `limits`, followed by its code and its stdin. The server answers with how the program
ended, followed by its stdout and stderr.
"""

import contextlib
import os
import signal
import socket
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from typing import Any

from mortal_steps.sandbox.base import ExecutionResult, Program
from mortal_steps.sandbox.box import (
    ENVIRONMENT,
    Interpreter,
    Way,
    command,
    own_interpreter,
    start_message,
)
from mortal_steps.sandbox.inside import wire

START_S = 60.0
"""Seconds that a lane may take to start, on a busy machine."""
GRACE_S = 30.0
"""Seconds that a server may take to answer after a program's own deadline."""
CLOSE_S = 5.0
"""Seconds that a server may take to end before it is killed."""


class LaneLost(Exception):
    """A lane did not start or did not answer, and has been ended. The message says why."""


class Lane:
    """Starts a server, which ends with the thread that started it. Raises `LaneLost` if the server
    does not start. `preload`: modules that it imports once for all programs."""

    is_worn_out = False
    """See `AnyLane`."""

    def __init__(
        self, way: Way, interpreter: Interpreter | None = None, *, preload: Sequence[str] = ()
    ) -> None:
        interpreter = interpreter or own_interpreter()
        try:
            self._launch(way, interpreter)
        except OSError as error:  # bubblewrap was removed; no descriptor, process or /tmp is left
            raise LaneLost(f"it could not be started: {error}") from None
        start = {**start_message(way, interpreter, self._process.pid), "preload": [*preload]}
        if "ready" not in self._ask(wire.encode(start), START_S, largest=1024):
            raise self._lost("it did not report that it is ready")

    def _launch(self, way: Way, interpreter: Interpreter) -> None:
        with contextlib.ExitStack() as opened:
            ours, theirs = map(opened.enter_context, socket.socketpair())
            errors = opened.enter_context(tempfile.TemporaryFile())
            self._process = subprocess.Popen(
                command(way, interpreter, theirs.fileno()),
                stdin=subprocess.DEVNULL,
                stdout=errors,
                stderr=errors,
                pass_fds=(theirs.fileno(),),
                env=ENVIRONMENT,
                start_new_session=True,  # Ctrl-C is for its owner only
            )
            theirs.close()
            self._connection, self._errors = ours, errors
            opened.pop_all()

    @property
    def pid(self) -> int:
        """Id of the lane's outermost process."""
        return self._process.pid

    def run(self, program: Program) -> ExecutionResult:
        within_s = program.limits.latest_s + GRACE_S
        answer = self._ask(request_of(program), within_s, largest_answer(program))
        try:
            return result_of(answer)
        except (KeyError, ValueError) as error:
            raise self._lost(f"its answer is no result: {error!r}") from None

    def close(self) -> None:
        self._end()
        self._errors.close()

    def _end(self) -> None:
        self._connection.close()
        try:
            self._process.wait(CLOSE_S)
        except subprocess.TimeoutExpired:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()

    def _ask(self, message: bytes, within_s: float, largest: int) -> dict[str, Any]:
        self._connection.settimeout(within_s)
        try:
            self._connection.sendall(message)
            return wire.receive(self._connection, largest)
        except TimeoutError:
            raise self._lost(f"no answer within {within_s:g} s") from None
        except (EOFError, OSError, ValueError) as error:
            raise self._lost(str(error) or "its process ended") from None

    def _lost(self, how: str) -> LaneLost:
        """End the lane. The error quotes the last output of its process."""
        self._end()
        output = self._errors.fileno()
        size = os.fstat(output).st_size
        last = os.pread(output, 2000, max(0, size - 2000)).decode(errors="replace").strip()
        self._errors.close()
        return LaneLost(f"{how}: {last}" if last else how)


def request_of(program: Program) -> bytes:
    limits = program.limits
    names = ("memory_mb", "processes", "open_files", "tmp_mb", "output_kb")
    numbers = {name: getattr(limits, name) for name in names}
    return wire.encode(
        {"limits": {**numbers, "cpu_s": limits.timeout, "wall_s": limits.deadline_s}},
        program.code.encode("utf-8", "surrogatepass"),
        program.stdin.encode("utf-8", "backslashreplace"),
    )


def largest_answer(program: Program) -> int:
    return 2 * 1024 * program.limits.output_kb + 65536


def result_of(answer: Mapping[str, Any]) -> ExecutionResult:
    """Return the result in a server's answer. Raises `KeyError`, `ValueError`."""
    limit, exit_code = answer["limit"], answer["exit_code"]
    if not (limit is None or isinstance(limit, str)) or not isinstance(exit_code, int):
        raise ValueError(f"{limit!r}, {exit_code!r}")
    stdout, stderr = (text.decode(errors="replace") for text in answer[wire.TEXTS])
    return ExecutionResult(
        success=exit_code == 0 and limit is None,
        stdout=stdout,
        stderr=stderr,
        exit_code=exit_code,
        duration=float(answer["duration"]),
        cpu_s=float(answer["cpu_s"]),
        wall_s=float(answer["wall_s"]),
        timed_out=limit in ("cpu_s", "wall_s"),
        truncated=limit == "output_kb",
        limit=limit,
    )
