"""What a host and its forks have in common: requests to one process, and the clock that limits it.

Code of users may hang while it holds the interpreter (a regular expression that backtracks for
hours does), end its process, or be killed for its memory. So it runs in a process of its own, and
the clock that limits it runs in this one.
"""

import abc
import itertools
import os
import socket
import time
from collections.abc import Mapping, Sequence
from typing import IO, Any, Literal, Protocol

from mortal_steps.errors import WorkerLostError
from mortal_steps.hosts.answers import (
    LARGEST_ANSWER,
    NoAnswerError,
    decode_answer,
    received_error,
)
from mortal_steps.system.frames import FrameError, Request, receive_bytes, send_frame

GRACE_S = 0.5
"""What a call may take beyond its time limit, so that the handler itself can end it at that."""
EXIT_S = 5.0
"""How long a process that closed its connection may take to be gone."""


class HostLostError(WorkerLostError):
    """The process gave no answer; it is gone by now. `why`: it took too long, it ended, or what it
    sent was no answer. `how` says so in words. `stack`: what faulthandler wrote of where in its
    code it was, as far as known."""

    def __init__(
        self, why: Literal["timeout", "ended", "spoilt"], how: str, stack: str = ""
    ) -> None:
        super().__init__(why, how, stack)
        self.why, self.how, self.stack = why, how, stack

    def __str__(self) -> str:
        remedy = ""
        if self.how.endswith("SIGKILL"):  # which no code does to itself
            remedy = "; memory may have run out: make room, and begin again"
        return f"a process with users' code was lost: {self.how}{remedy}\n{self.stack}".rstrip()


class Host(abc.ABC):
    """Calls methods of the handler in a process with users' code. For one thread at a time."""

    _connection: socket.socket
    _stacks: IO[bytes]

    def __init__(self) -> None:
        self._numbers = itertools.count(1)

    def call(self, method: str, *, returns: Any, timeout_s: float, **payload: Any) -> Any:
        """Return the method's result, of the type `returns`. Raises the method's `MortalError`,
        `WorkerError` for any other exception, `HostLostError` without an answer in `timeout_s`."""
        request = Request(
            number=next(self._numbers), method=method, payload=payload, timeout_s=timeout_s
        )
        return self._exchange(request.number, request, timeout_s + GRACE_S, returns)

    @abc.abstractmethod
    def close(self) -> None:
        """End the process and what it started."""

    def spoilt(self, what: str) -> HostLostError:
        """End the process, which wrote what its handler would not; returns the error."""
        return self._lost("spoilt", f"wrote into the connection of its process: {what}")

    @abc.abstractmethod
    def _ending(self) -> str:
        """Return how the process ended, which has closed its connection."""

    def _exchange(self, number: int, message: object, timeout_s: float, returns: Any) -> Any:
        """Return the answer to a message; without one, send nothing."""
        deadline = time.monotonic() + timeout_s
        self._connection.settimeout(timeout_s)
        try:
            if message is not None:
                send_frame(self._connection, message)
            content = receive_bytes(self._connection, deadline=deadline, largest=LARGEST_ANSWER)
            answer = decode_answer(content, number, returns)
            error = received_error(answer.error) if answer.error is not None else None
        except (NoAnswerError, FrameError) as wrong:
            raise self.spoilt(str(wrong)) from None
        except TimeoutError:
            raise self._lost("timeout", f"no answer within {timeout_s:g} s") from None
        except (EOFError, ConnectionError):
            # At its limit it writes where in its code it is, which may crash a process whose
            # threads come and go, as those of a pool do that replaces its workers.
            is_late = message is not None and time.monotonic() >= deadline - GRACE_S
            raise self._lost("timeout" if is_late else "ended", self._ending()) from None
        except BaseException:
            self.close()  # its answer to this would be taken for the answer to the next call
            raise
        if error is not None:
            raise error
        return answer.value

    def _lost(self, why: Literal["timeout", "ended", "spoilt"], how: str) -> HostLostError:
        """End what is left of the process."""
        stack = os.pread(self._stacks.fileno(), 1 << 20, 0).decode(errors="replace")
        self.close()
        return HostLostError(why, how, stack)


Announced = tuple[str, float, Mapping[str, Any]]
"""Method, seconds that it may take, and arguments of a call."""


class Fork(Protocol):
    """A copy of a host, in a process of its own; see `Host`."""

    def call(self, method: str, *, returns: Any, timeout_s: float, **payload: Any) -> Any: ...

    def announce(self, calls: Sequence[Announced]) -> None:
        """Say which calls come next, in this order: what is far away begins them at once."""
        ...

    def spoilt(self, what: str) -> HostLostError: ...

    def reach(self, port: int) -> int:
        """Return where its code finds what listens on this port of 127.0.0.1 here."""
        ...

    def kill(self) -> None:
        """Have it ended, whatever it is at, without waiting for that."""
        ...

    def close(self) -> None: ...


class ForkingHost(Protocol):
    """A host that can be forked, on this machine (`HostProcess`) or on another (`RemoteHost`)."""

    def start(self) -> None: ...

    def call(self, method: str, *, returns: Any, timeout_s: float, **payload: Any) -> Any: ...

    def fork(self) -> Fork: ...

    def close(self) -> None: ...


def stack_of(dump: str, caller: str) -> str:
    """Return the calls inside the code of the user, innermost first, from what faulthandler wrote.
    One block per thread, the newest thread first; the one that called the user's code has a frame
    of the file `caller`."""
    for block in dump.split("\n\n"):
        frames = [line for line in block.splitlines() if line.startswith("  File ")]
        ours = [number for number, line in enumerate(frames) if f'"{caller}"' in line]
        if ours:
            return "\n".join(["Where it was, innermost call first:", *frames[: ours[0]]])
    return ""
