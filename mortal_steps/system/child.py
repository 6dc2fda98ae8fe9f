"""A child process that ends with its owner, and takes along whatever it has started.

A small process stands between the two. It holds the reading end of a pipe, the *lifeline*, of which
the owner holds the other end: the kernel closes that when the owner ends, in whatever way and
whichever thread began the child. The supervisor inherits the descendants of the child, even those
that have left its process group, and kills all of them once the child has ended or the lifeline
has. SIGTERM and SIGINT are passed on to the child. Its exit code becomes the supervisor's. A child
of which others wait for orders is continued when something has stopped it (`continues`).

The supervisor runs this very file in an interpreter without packages, so it starts in a few
hundredths of a second: it imports nothing but the standard library. Elsewhere than on Linux there
is no supervisor, and the owner alone ends the child.
"""

import contextlib
import ctypes
import os
import resource
import select
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO, NoReturn

PR_SET_PDEATHSIG, PR_SET_CHILD_SUBREAPER = 1, 36
"""From <linux/prctl.h>."""
CANNOT_EXECUTE = 127
PASSED_ON = (signal.SIGTERM, signal.SIGINT)
KILL = b"k"
"""What the owner writes to the lifeline to have all killed; its end alone leaves them a grace."""


class Child(subprocess.Popen[bytes]):
    """The supervisor of a child, as its owner sees it: `returncode` is that of the child.

    `terminate` sends SIGTERM to the child, `kill` ends it and its descendants at once. The child is
    in a session of its own, so a Ctrl-C reaches the owner alone. When its owner ends, it has
    `grace_s` to end by itself: it may see that at a connection or at its input. The folder
    `scratch` is removed when all have ended. Raises `OSError` if the program cannot be found.
    """

    def __init__(
        self,
        command: Sequence[str],
        *,
        env: Mapping[str, str] | None = None,
        cwd: str | Path | None = None,
        stdin: int | IO[bytes] = subprocess.DEVNULL,
        output: int | IO[bytes] | None = None,
        pass_fds: Sequence[int] = (),
        grace_s: float = 0.0,
        scratch: str | Path = "",
        continues: bool = False,
    ) -> None:
        if shutil.which(command[0]) is None:
            raise FileNotFoundError(2, os.strerror(2), command[0])
        ours: list[str] = []
        self._cutting = threading.Lock()  # threads wait for it while others kill it
        lifeline, self._lifeline = os.pipe()
        if sys.platform == "linux":
            options = map(str, (lifeline, grace_s, scratch, int(continues)))
            ours = [sys.executable, "-I", "-S", __file__, *options]
        try:
            super().__init__(
                [*ours, *command],
                env=env,
                cwd=cwd,
                stdin=stdin,
                stdout=output,
                stderr=subprocess.STDOUT if output is not None else None,
                pass_fds=(lifeline, *pass_fds) if ours else pass_fds,
                start_new_session=True,
            )
        except BaseException:
            os.close(self._lifeline)
            raise
        finally:
            os.close(lifeline)

    def poll(self) -> int | None:
        """Return the exit code, or None while the child runs."""
        code = super().poll()
        self._cut_lifeline()
        return code

    def wait(self, timeout: float | None = None) -> int:
        """Wait until the child and its descendants have ended; return the exit code."""
        code = super().wait(timeout)
        self._cut_lifeline()
        return code

    def kill(self) -> None:
        """Have the child and its descendants killed at once, whatever its grace."""
        if sys.platform != "linux":
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.pid, signal.SIGKILL)
            return
        with self._cutting, contextlib.suppress(BrokenPipeError):  # it has ended
            if self._lifeline >= 0:
                os.write(self._lifeline, KILL)

    def kill_all(self) -> None:
        """Kill the child and its descendants; return when they are gone."""
        self.kill()
        self.wait()

    def _cut_lifeline(self) -> None:
        with self._cutting:
            if self.returncode is not None and self._lifeline >= 0:
                lifeline, self._lifeline = self._lifeline, -1
                os.close(lifeline)


def _prctl(option: int, value: int) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(option, *map(ctypes.c_ulong, (value, 0, 0, 0))) < 0:
        raise OSError(ctypes.get_errno(), "prctl")


def adopt_orphans() -> None:
    """Have descendants whose parents end become this process's children."""
    if sys.platform == "linux":
        _prctl(PR_SET_CHILD_SUBREAPER, 1)


def _supervise(
    lifeline: int, grace_s: float, scratch: str, continues: bool, command: Sequence[str]
) -> NoReturn:
    adopt_orphans()
    wakeup, waker = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
    signal.set_wakeup_fd(waker)
    for number in (signal.SIGCHLD, *PASSED_ON):
        signal.signal(number, lambda signum, frame: None)
    os.set_inheritable(lifeline, False)
    supervisor = os.getpid()
    child = os.fork()
    if child == 0:
        _become(command, supervisor)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, PASSED_ON)  # the child may hold some of them back
    kept = {0, 1, 2, lifeline, wakeup, waker}
    for descriptor in set(map(int, os.listdir("/proc/self/fd"))) - kept:
        with contextlib.suppress(OSError):  # the one that listed them
            os.close(descriptor)  # the child's connections are to end with the child
    status = _wait(child, lifeline, wakeup, grace_s, continues)
    _kill_descendants()
    if scratch:
        shutil.rmtree(scratch, ignore_errors=True)
    _end_as(status)


def _become(command: Sequence[str], supervisor: int) -> NoReturn:
    signal.set_wakeup_fd(-1)
    for number in (signal.SIGCHLD, *PASSED_ON):
        signal.signal(number, signal.SIG_DFL)
    _prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != supervisor:  # it has ended already
        os._exit(1)
    try:
        os.execvp(command[0], list(command))
    except OSError as error:
        sys.stderr.write(f"{command[0]}: {error.strerror}\n")
        sys.stderr.flush()
    os._exit(CANNOT_EXECUTE)


def _wait(child: int, lifeline: int, wakeup: int, grace_s: float, continues: bool) -> int:
    """Return the child's status once it has ended, or once it has to be killed: its owner says so,
    or has ended `grace_s` ago."""
    events = select.poll()
    events.register(lifeline, select.POLLIN)
    events.register(wakeup, select.POLLIN)
    kill_at: float | None = None
    while True:
        left_ms = None if kill_at is None else max(0.0, 1000 * (kill_at - time.monotonic()))
        ready = [descriptor for descriptor, _ in events.poll(left_ms)]
        if wakeup in ready:
            for number in set(os.read(wakeup, 4096)).intersection(PASSED_ON):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(child, number)
        with contextlib.suppress(ChildProcessError):
            while (ended := os.waitpid(-1, os.WNOHANG | os.WUNTRACED))[0]:
                if os.WIFSTOPPED(ended[1]):
                    if ended[0] == child and continues:
                        os.kill(child, signal.SIGCONT)
                elif ended[0] == child:
                    return ended[1]
        if lifeline in ready:
            events.unregister(lifeline)
            kill_at = time.monotonic() + (0.0 if os.read(lifeline, 1) == KILL else grace_s)
        if kill_at is not None and time.monotonic() >= kill_at:
            return int(signal.SIGKILL)


def _kill_descendants() -> None:
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
    """Read each process's parent: /proc/PID/task/PID/children is not in every kernel."""
    me = os.getpid()
    for name in os.listdir("/proc"):
        if name.isdigit():
            with contextlib.suppress(OSError), open(f"/proc/{name}/stat", "rb") as stat:
                if int(stat.read().rpartition(b")")[2].split()[1]) == me:
                    yield int(name)


def _end_as(status: int) -> NoReturn:
    code = os.waitstatus_to_exitcode(status)
    if code < 0:
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))  # the child has left one, if any is wanted
        signal.set_wakeup_fd(-1)
        with contextlib.suppress(OSError):  # SIGKILL has no handler to take away
            signal.signal(-code, signal.SIG_DFL)
        os.kill(os.getpid(), -code)
    os._exit(abs(code))


if __name__ == "__main__":
    _supervise(int(sys.argv[1]), float(sys.argv[2]), sys.argv[3], sys.argv[4] == "1", sys.argv[5:])
