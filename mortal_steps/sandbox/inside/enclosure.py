"""What isolates a program, as its server sees it: the program's folder, its processes, their end.

| enclosure | what it is | what ends a program's processes |
|---|---|---|
| `box` | namespaces, in which the server is the first process | one call to the kernel |
| `bare` | nothing: programs run as the server's user | the server, which adopts orphans |
| `container` | a container with a user id of its own for programs | a process with that id |
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import sys
import tempfile
from collections.abc import Iterator
from typing import Any

from . import kernel

WRITABLE = ("/tmp", "/var/tmp", "/dev/shm")
"""The folders of a container that every user may write to."""


class Box:
    """A box of namespaces. It contains the server and the processes of the program, no others."""

    counts = True
    """Whether a program's processes can be told from others and therefore counted together."""
    is_used_up = False
    """Whether a program left something behind that the next one would find."""

    def __init__(self, uid: int | None) -> None:
        self.uid = uid
        """The user id of programs; None: the server's own."""

    def prepare(self) -> None:
        """Prepare for programs. Called once, before the first one. Raises `OSError`."""
        _go_first()
        kernel.make_proc_read_only()  # or programs could lower their own oom_score_adj
        kernel.prctl(kernel.PR_SET_PDEATHSIG, signal.SIGKILL)
        kernel.prctl(kernel.PR_SET_DUMPABLE, 0)  # hide memory and descriptors from programs

    @contextlib.contextmanager
    def scratch(self, size_mb: int) -> Iterator[None]:
        """Enter an empty folder of at most `size_mb` MiB, which is removed with all in it."""
        kernel.mount_tmp("/tmp", size_mb)
        os.chdir("/tmp")
        try:
            yield
        finally:
            os.chdir("/")
            kernel.unmount("/tmp")

    @contextlib.contextmanager
    def end_of(self, pid: int) -> Iterator[int]:
        """Yield a descriptor that is readable when the first process may have ended."""
        descriptor = os.pidfd_open(pid)
        try:
            yield descriptor
        finally:
            os.close(descriptor)

    def has_ended(self, descriptor: int, pid: int) -> bool:
        """Whether that process has ended, once the descriptor has become readable."""
        return True

    def others(self) -> Iterator[int]:
        """Return the ids of the program's processes."""
        me = os.getpid()
        return (pid for pid in _all() if pid != me)

    def kill_others(self) -> None:
        """Send SIGKILL to all processes of the program."""
        with contextlib.suppress(ProcessLookupError):
            os.kill(-1, signal.SIGKILL)  # sent by the first process in a box: to all but itself


class Bare(Box):
    """No isolation: only the server's children are known to be a program's."""

    counts = False

    def prepare(self) -> None:
        _go_first()
        kernel.prctl(kernel.PR_SET_CHILD_SUBREAPER, 1)

    @contextlib.contextmanager
    def scratch(self, size_mb: int) -> Iterator[None]:
        folder = tempfile.mkdtemp(prefix="mortal-program-")
        os.chdir(folder)
        try:
            yield
        finally:
            os.chdir("/")
            shutil.rmtree(folder, ignore_errors=True)

    def kill_others(self) -> None:
        """Send SIGKILL to the children of the server. When they have ended, their own children
        become children of the server."""
        me = os.getpid()
        for pid in self.others():
            with contextlib.suppress(OSError):
                with open(f"/proc/{pid}/stat", "rb") as stat:
                    parent = int(stat.read().rpartition(b")")[2].split()[1])
                if parent == me:
                    os.kill(pid, signal.SIGKILL)


class Container(Box):
    """A container that somebody else isolates for this server alone: it needs no namespaces, mounts
    or pidfds, which an emulated kernel may lack."""

    def __init__(self, first_uid: int) -> None:
        super().__init__(first_uid + os.getpid())
        self._own = self.uid or 0
        self._woken, self._wake = os.pipe2(os.O_NONBLOCK)

    def prepare(self) -> None:
        """See `Box`. Raises `PermissionError` if the server is not root."""
        if os.geteuid() != 0:
            raise PermissionError("commands are not root, so programs cannot be another user")
        os.makedirs("/tmp", exist_ok=True)
        os.chmod("/tmp", 0o1777)
        for path in (os.__file__, *sys.path):  # programs need the interpreter, even in /root
            _let_through(path)
        kernel.prctl(kernel.PR_SET_CHILD_SUBREAPER, 1)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.set_wakeup_fd(self._wake, warn_on_full_buffer=False)

    @contextlib.contextmanager
    def scratch(self, size_mb: int) -> Iterator[None]:
        """See `Box`. The size is not limited here, but by whoever runs the container."""
        os.chdir("/tmp")
        try:
            yield
        finally:
            os.chdir("/")
            if any(self.others()):  # orphans that the kernel has given to another process
                self.kill_others()
            self._remove_files()

    @contextlib.contextmanager
    def end_of(self, pid: int) -> Iterator[int]:
        yield self._woken

    def has_ended(self, descriptor: int, pid: int) -> bool:
        """See `Box`. The descriptor becomes readable when any child ends."""
        with contextlib.suppress(BlockingIOError):
            os.read(descriptor, 4096)
        return os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None

    def others(self) -> Iterator[int]:
        """See `Box`. These are the processes of the programs' user that have not ended."""
        for pid in _all():
            with contextlib.suppress(OSError), open(f"/proc/{pid}/status", "rb") as status:
                fields = dict(line.split(b":", 1) for line in status if b":" in line)
                has_ended = fields[b"State"].split()[0] == b"Z"
                if int(fields[b"Uid"].split()[0]) == self._own and not has_ended:
                    yield pid

    def kill_others(self) -> None:
        """See `Box`. A fork bomb cannot escape a signal that is sent to all processes of a user."""
        while any(self.others()):
            killer = os.fork()
            if killer == 0:
                self._become_user_and_kill()
            os.waitpid(killer, 0)

    def _become_user_and_kill(self) -> None:
        try:
            os.closerange(0, 1 << 16)
            os.setgroups([])
            os.setresgid(self._own, self._own, self._own)
            os.setresuid(self._own, self._own, self._own)
            os.kill(-1, signal.SIGKILL)
        finally:
            os._exit(0)

    def _remove_files(self) -> None:
        """Remove the files of the programs' user from the folders that everybody may write to."""
        for folder in WRITABLE:
            try:
                with os.scandir(folder) as found:
                    there = list(found)
                for one in there:
                    if one.stat(follow_symlinks=False).st_uid != self._own:
                        continue
                    if one.is_dir(follow_symlinks=False):
                        shutil.rmtree(one.path)
                    else:
                        os.unlink(one.path)
            except FileNotFoundError:
                continue
            except (OSError, RecursionError):  # for example, folders nested too deeply
                self.is_used_up = True


def enclosure_of(start: dict[str, Any]) -> Box:
    """Return the enclosure that the first message to a server names."""
    kinds = {"box": Box, "bare": Bare, "container": Container}
    return kinds[start["enclosure"]](start["uid"])


def _let_through(path: str) -> None:
    """Let all users enter the folders that contain a path."""
    folder = os.path.dirname(os.path.realpath(path))
    while folder != "/":
        mode = os.stat(folder).st_mode & 0o7777 if os.path.isdir(folder) else 0o111
        if mode & 0o111 != 0o111:
            os.chmod(folder, mode | 0o111)
        folder = os.path.dirname(folder)


def _go_first() -> None:
    """Have the kernel kill this process and its programs first when memory runs out."""
    with open("/proc/self/oom_score_adj", "w", encoding="utf-8") as score:
        score.write("1000")


def _all() -> Iterator[int]:
    return (int(name) for name in os.listdir("/proc") if name.isdigit())
