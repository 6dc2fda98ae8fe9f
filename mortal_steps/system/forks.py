"""A process that forks itself on the orders of its owner, and tells the owner how each fork ends.

Each order is a message that brings descriptors along. The first of them is the socket of this
order: the fork's exit status is answered there, and when the owner closes its side, the fork and
what it started are killed. When it ends by itself, those of its process group are; others end with
this process, by its supervisor.
"""

import contextlib
import os
import select
import signal
import socket
import struct
import sys
import traceback
from collections.abc import Callable, Mapping

STATUS = struct.Struct("i")
"""How an exit status travels, as `subprocess` counts: below zero for a signal."""
CANNOT_FORK = os.EX_OSERR
"""Status of a fork that the system had no room for."""
MOST_DESCRIPTORS = 32


def _nothing() -> None:
    pass


def serve_forks(
    control: socket.socket,
    *,
    largest: int,
    also: Mapping[socket.socket, Callable[[], object]] | None = None,
    before_first: Callable[[], object] = _nothing,
) -> tuple[bytes, list[int]] | None:
    """Fork on each order, of `largest` bytes at most, that arrives on `control`.

    In a fork, return its order and descriptors, but for the first; it is in a session of its own,
    and the caller closes `control` and what else is not its own. In this process, return None when
    the owner is gone. Whenever a socket of `also` can be read, its function is called;
    `before_first` is called before the first fork.
    """
    also = also or {}
    wakeup, waker = socket.socketpair()
    with wakeup, waker, contextlib.ExitStack() as ending:
        wakeup.setblocking(False)
        waker.setblocking(False)
        signal.signal(signal.SIGCHLD, lambda signum, frame: None)
        signal.set_wakeup_fd(waker.fileno())
        ending.callback(signal.set_wakeup_fd, -1)
        forks: dict[socket.socket, int] = {}
        unwanted: set[socket.socket] = set()
        while True:
            watched = select.poll()  # select.select takes no descriptor above 1023
            sockets = {
                each.fileno(): each for each in (control, wakeup, *also, *(forks.keys() - unwanted))
            }
            for descriptor in sockets:
                watched.register(descriptor, select.POLLIN)
            ready = {sockets[descriptor] for descriptor, _ in watched.poll()}
            if wakeup in ready:
                wakeup.recv(4096)
            for answers in forks.keys() & ready:
                _kill(forks[answers])
                unwanted.add(answers)
            _reap(forks)
            unwanted &= forks.keys()
            if control in ready:
                order, descriptors, _, _ = socket.recv_fds(control, largest, MOST_DESCRIPTORS)
                if not order:
                    return None
                before_first()
                before_first = _nothing
                if _is_fork(descriptors, forks):
                    return order, descriptors
            for each in also.keys() & ready:
                also[each]()


def _is_fork(descriptors: list[int], forks: dict[socket.socket, int]) -> bool:
    """Fork for an order with these descriptors; return whether this is the fork. It has nothing to
    do with the other ones then."""
    answers = socket.socket(fileno=descriptors.pop(0))
    pid = _fork()
    if pid == 0:
        for each in (answers, *forks):
            each.close()
        _leave()
        return True
    for descriptor in descriptors:
        os.close(descriptor)
    if pid is None:
        _tell(answers, CANNOT_FORK)
    else:
        forks[answers] = pid
    return False


def _fork() -> int | None:
    sys.stdout.flush()  # or the fork would print it once more
    sys.stderr.flush()
    try:
        return os.fork()
    except OSError:
        traceback.print_exc()
        return None


def _leave() -> None:
    os.setsid()
    signal.set_wakeup_fd(-1)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)


def _kill(pid: int) -> None:
    """Kill a fork that was not waited for, and what it started, in whatever session that is."""
    for each in (pid, *_descendants(pid)):
        with contextlib.suppress(ProcessLookupError, PermissionError):  # it has ended
            os.kill(each, signal.SIGKILL)


def _descendants(pid: int) -> list[int]:
    """Return the descendants of a process, where the kernel lists them."""
    found: list[int] = []
    with contextlib.suppress(OSError):  # it has ended, or there is no such list
        for task in os.listdir(f"/proc/{pid}/task"):
            with open(f"/proc/{pid}/task/{task}/children", encoding="utf-8") as children:
                found += map(int, children.read().split())
    return [each for child in found for each in (child, *_descendants(child))]


def _kill_group(pid: int) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):  # all of it has ended
        os.killpg(pid, signal.SIGKILL)


def _reap(forks: dict[socket.socket, int]) -> None:
    for answers, pid in list(forks.items()):
        ended, status = os.waitpid(pid, os.WNOHANG)
        if ended:
            _kill_group(pid)  # what it started
            del forks[answers]
            _tell(answers, os.waitstatus_to_exitcode(status))


def _tell(answers: socket.socket, status: int) -> None:
    with answers, contextlib.suppress(OSError):  # whoever asked is gone
        answers.send(STATUS.pack(status))
