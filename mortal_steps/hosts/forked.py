"""A fork of a host: what the host has imported and made, in a process of its own, within
milliseconds."""

import contextlib
import socket
import tempfile
from collections.abc import Callable, Sequence
from typing import Any

from mortal_steps.errors import WorkerLostError
from mortal_steps.hosts.base import EXIT_S, Announced, Host, HostLostError
from mortal_steps.system.forks import CANNOT_FORK, STATUS
from mortal_steps.system.processes import ending

ORDER = b"f"
"""With it travel the socket of the order, the connection of the fork, and its file for stacks."""
WITH_HOST = "its host: "
"""How the end of a fork begins that ended with its host, and so with all others."""
BEGIN_S = 60.0
"""How long the host may take to fork: it may be answering a call, and other forks may wait."""


class ForkedHost(Host):
    """Calls methods of a handler's copy in a fork of its host. It ends with its host, and is not
    begun again after it was lost. `control`: where the host takes orders; `host_ending` says how
    the host ended. For one thread at a time."""

    def __init__(self, control: socket.socket, host_ending: Callable[[], str]) -> None:
        super().__init__()
        self._host_ending = host_ending
        self._is_closed = False
        try:
            self._order(control)
        except (BrokenPipeError, ConnectionResetError):
            raise HostLostError("ended", host_ending()) from None
        except OSError as error:
            raise _no_room(str(error)) from None
        try:
            self._exchange(0, None, BEGIN_S, None)
        except HostLostError as lost:
            if lost.how == ending(CANNOT_FORK):
                raise _no_room("it could not be forked") from None
            raise

    def call(self, method: str, *, returns: Any, timeout_s: float, **payload: Any) -> Any:
        if self._is_closed:
            raise HostLostError("ended", "it had ended before the call")
        return super().call(method, returns=returns, timeout_s=timeout_s, **payload)

    def announce(self, calls: Sequence[Announced]) -> None:
        """See `Fork.announce`: it is near."""

    def reach(self, port: int) -> int:
        """See `Fork.reach`: it is on this machine."""
        return port

    def kill(self) -> None:
        with contextlib.suppress(OSError):  # it has ended
            self._answers.shutdown(socket.SHUT_WR)

    def close(self) -> None:
        if self._is_closed:
            return
        self._is_closed = True
        with self._connection, self._stacks, self._answers:
            self.kill()
            self._status()

    def _order(self, control: socket.socket) -> None:
        with contextlib.ExitStack() as opened:
            ours, theirs = map(opened.enter_context, socket.socketpair())
            answers, told = map(opened.enter_context, socket.socketpair())
            stacks = opened.enter_context(tempfile.TemporaryFile())
            socket.send_fds(control, [ORDER], [told.fileno(), theirs.fileno(), stacks.fileno()])
            theirs.close()
            told.close()
            answers.settimeout(EXIT_S)
            self._connection, self._answers, self._stacks = ours, answers, stacks
            opened.pop_all()

    def _ending(self) -> str:
        status = self._status()
        if status is None:
            return "it closed its connection"
        return ending(STATUS.unpack(status)[0]) if status else WITH_HOST + self._host_ending()

    def _status(self) -> bytes | None:
        """Wait for the end: how it ended, b"" if the host ended first, None if it goes on."""
        try:
            return self._answers.recv(STATUS.size)
        except TimeoutError:
            return None
        except OSError:
            return b""


def _no_room(what: str) -> WorkerLostError:
    return WorkerLostError(
        f"a process for users' code could not be forked: {what}; the machine may be short of "
        "processes, descriptors, memory, or room in its temporary folder"
    )
