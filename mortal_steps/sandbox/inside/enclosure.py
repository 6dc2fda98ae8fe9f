"""What shuts a program in, as the server beside it knows it: its folder, its processes, their end.

| enclosure | is | who ends a program's processes |
|---|---|---|
| `box` | namespaces of its own, whose first process the server is | one call to the kernel |
| `bare` | nothing: programs run as the server's user | the server, parent of the orphans |
| `container` | a container, in which programs have a user id of their own | one who takes that id |
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
"""Folders of a container that every user may write to."""


class Box:
    """Of namespaces; a program's processes are all there are besides the server."""

    counts = True
    """Whether a program's processes can be told from others, and so counted together."""
    is_used_up = False
    """Whether something of a program is left that the next one would find."""

    def __init__(self, uid: int | None) -> None:
        self.uid = uid
        """Of programs; None: the server's own."""

    def prepare(self) -> None:
        """Called once, before the first program."""
        _go_first()
        kernel.make_proc_read_only()  # or programs would step back in that line
        kernel.prctl(kernel.PR_SET_PDEATHSIG, signal.SIGKILL)
        kernel.prctl(kernel.PR_SET_DUMPABLE, 0)  # hides memory and descriptors from programs

    @contextlib.contextmanager
    def scratch(self, size_mb: int) -> Iterator[None]:
        """An empty working folder, which goes with whatever is in it."""
        kernel.mount_tmp("/tmp", size_mb)
        os.chdir("/tmp")
        try:
            yield
        finally:
            os.chdir("/")
            kernel.unmount("/tmp")

    @contextlib.contextmanager
    def end_of(self, pid: int) -> Iterator[int]:
        """A descriptor that can be read once a program's first process may have ended."""
        descriptor = os.pidfd_open(pid)
        try:
            yield descriptor
        finally:
            os.close(descriptor)

    def has_ended(self, descriptor: int, pid: int) -> bool:
        """Whether it has, where the descriptor can be read."""
        return True

    def others(self) -> Iterator[int]:
        """The processes of a program."""
        me = os.getpid()
        return (pid for pid in _all() if pid != me)

    def kill_others(self) -> None:
        """SIGKILL to all of them."""
        with contextlib.suppress(ProcessLookupError):
            os.kill(-1, signal.SIGKILL)  # of the first process in a box: all but itself


class Bare(Box):
    """Nothing; only children can be told from other processes of the user's."""

    counts = False

    def prepare(self) -> None:
        """See `Box`."""
        _go_first()
        kernel.prctl(kernel.PR_SET_CHILD_SUBREAPER, 1)

    @contextlib.contextmanager
    def scratch(self, size_mb: int) -> Iterator[None]:
        """See `Box`."""
        folder = tempfile.mkdtemp(prefix="mortal-program-")
        os.chdir(folder)
        try:
            yield
        finally:
            os.chdir("/")
            shutil.rmtree(folder, ignore_errors=True)

    def kill_others(self) -> None:
        """Children; theirs become children when they have ended."""
        me = os.getpid()
        for pid in self.others():
            with contextlib.suppress(OSError):
                with open(f"/proc/{pid}/stat", "rb") as stat:
                    parent = int(stat.read().rpartition(b")")[2].split()[1])
                if parent == me:
                    os.kill(pid, signal.SIGKILL)


class Container(Box):
    """A container that somebody else keeps apart from the world, and the server alone uses.

    It asks little of the kernel, which may be an emulated one: no namespaces, mounts or pidfds.
    """

    def __init__(self, first_uid: int) -> None:
        super().__init__(first_uid + os.getpid())
        self._own = self.uid or 0
        self._woken, self._wake = os.pipe2(os.O_NONBLOCK)

    def prepare(self) -> None:
        """See `Box`; raises `PermissionError` where the server is not root."""
        if os.geteuid() != 0:
            raise PermissionError("commands are not root, so programs cannot be another user")
        os.makedirs("/tmp", exist_ok=True)
        os.chmod("/tmp", 0o1777)
        for path in (os.__file__, *sys.path):  # an interpreter in /root is for programs, too
            _let_through(path)
        kernel.prctl(kernel.PR_SET_CHILD_SUBREAPER, 1)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.set_wakeup_fd(self._wake, warn_on_full_buffer=False)

    @contextlib.contextmanager
    def scratch(self, size_mb: int) -> Iterator[None]:
        """See `Box`; whoever keeps the container limits its disk."""
        os.chdir("/tmp")
        try:
            yield
        finally:
            os.chdir("/")
            if any(self.others()):  # orphans, where the kernel has given them to somebody else
                self.kill_others()
            self._remove_files()

    @contextlib.contextmanager
    def end_of(self, pid: int) -> Iterator[int]:
        """See `Box`."""
        yield self._woken

    def has_ended(self, descriptor: int, pid: int) -> bool:
        """See `Box`; any child's end wakes."""
        with contextlib.suppress(BlockingIOError):
            os.read(descriptor, 4096)
        return os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None

    def others(self) -> Iterator[int]:
        """See `Box`: those of the programs' user that have not ended."""
        for pid in _all():
            with contextlib.suppress(OSError), open(f"/proc/{pid}/status", "rb") as status:
                said = dict(line.split(b":", 1) for line in status if b":" in line)
                if int(said[b"Uid"].split()[0]) == self._own and said[b"State"].split()[0] != b"Z":
                    yield pid

    def kill_others(self) -> None:
        """See `Box`. A fork bomb cannot outrun a signal to all processes of a user."""
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
        """What the programs' user has written where everybody may."""
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
            except (OSError, RecursionError):  # folders too deep, say
                self.is_used_up = True


def enclosure_of(start: dict[str, Any]) -> Box:
    """The one that a server is told of."""
    kinds = {"box": Box, "bare": Bare, "container": Container}
    return kinds[start["enclosure"]](start["uid"])


def _let_through(path: str) -> None:
    """Let all users enter the folders that a path is in."""
    folder = os.path.dirname(os.path.realpath(path))
    while folder != "/":
        mode = os.stat(folder).st_mode & 0o7777 if os.path.isdir(folder) else 0o111
        if mode & 0o111 != 0o111:
            os.chmod(folder, mode | 0o111)
        folder = os.path.dirname(folder)


def _go_first() -> None:
    """Where memory runs out, programs go first."""
    with open("/proc/self/oom_score_adj", "w") as score:
        score.write("1000")


def _all() -> Iterator[int]:
    return (int(name) for name in os.listdir("/proc") if name.isdigit())
