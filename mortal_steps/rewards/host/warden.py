"""The process around the reward host: what reward functions start ends with them.

Functions start processes (a compiler, a server with a judge), and some of those leave their
process group. So the reward host is a child of this process, which inherits whatever the host
leaves behind, and ends all of it when the host has ended or its owner has, however that came.

Started by `HostProcess` as `python -m mortal_steps.rewards.host.warden FD OWNER`. It divides into
the two processes before anything is imported. Elsewhere than on Linux there is the host alone.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import resource
import signal
import sys
from collections.abc import Iterator
from typing import NoReturn

PR_SET_PDEATHSIG = 1
PR_SET_CHILD_SUBREAPER = 36
"""From <linux/prctl.h>."""

WATCHED = {signal.SIGCHLD, signal.SIGTERM}
"""A child has ended; the owner has, or wants the end."""


def main() -> None:
    """Become the reward host, with a warden above it."""
    descriptor, owner = map(int, sys.argv[1:])
    if sys.platform == "linux":
        _watch_a_child(owner)
    from mortal_steps.rewards.host.inside import (
        serve,  # after the division: its imports are the host's
    )

    serve(descriptor)


def _watch_a_child(owner: int) -> None:
    """Returns in the child; this process becomes its warden and ends with it."""
    signal.pthread_sigmask(signal.SIG_BLOCK, WATCHED)
    libc = ctypes.CDLL(None)
    libc.prctl(PR_SET_CHILD_SUBREAPER, 1)
    _end_with_parent(libc, owner, signal.SIGTERM)
    warden = os.getpid()
    host = os.fork()
    if host == 0:
        # No thread could do it: none runs while a regular expression holds the interpreter.
        _end_with_parent(libc, warden, signal.SIGKILL)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, WATCHED)
        return
    for descriptor in map(int, os.listdir("/proc/self/fd")):
        if descriptor > 2:  # the host's connection is to end with the host
            with contextlib.suppress(OSError):  # the one that listed them
                os.close(descriptor)
    status = _wait_for(host)
    _end_children()
    _end_as(status)


def _end_with_parent(libc: ctypes.CDLL, parent: int, by: signal.Signals) -> None:
    libc.prctl(PR_SET_PDEATHSIG, by)
    if os.getppid() != parent:  # it has ended already
        os._exit(1)


def _wait_for(host: int) -> int | None:
    """How the host ended; None where it is to be ended."""
    while signal.sigwait(WATCHED) != signal.SIGTERM:
        with contextlib.suppress(ChildProcessError):
            while (ended := os.waitpid(-1, os.WNOHANG))[0]:
                if ended[0] == host:
                    return ended[1]
    return None


def _end_children() -> None:
    """Kill until nobody is left: the children of those killed come here, too."""
    while True:
        for child in _children():
            with contextlib.suppress(ProcessLookupError):
                os.kill(child, signal.SIGKILL)
        try:
            os.waitpid(-1, 0)
        except ChildProcessError:
            return


def _children() -> Iterator[int]:
    """/proc/PID/task/PID/children would do, where the kernel is built with it."""
    me = os.getpid()
    for name in os.listdir("/proc"):
        if name.isdigit():
            with contextlib.suppress(OSError), open(f"/proc/{name}/stat", "rb") as stat:
                if int(stat.read().rpartition(b")")[2].split()[1]) == me:
                    yield int(name)


def _end_as(status: int | None) -> NoReturn:
    """End as the host did, for the owner to see."""
    if status is None:
        os._exit(0)
    code = os.waitstatus_to_exitcode(status)
    if code < 0:
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))  # the host has left one, if any is wanted
        with contextlib.suppress(OSError):  # SIGKILL has no handler to take away
            signal.signal(-code, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, [-code])
        os.kill(os.getpid(), -code)
    os._exit(abs(code))


if __name__ == "__main__":
    main()
