"""Watch a program until it ends or reaches a limit, then end all of its processes."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import socket
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

CHUNK = 65536
LOOK_EVERY_S = 0.05
"""How often the processes of a program are counted."""
LONGEST_LOOK_S = 1.0
"""What one look counts for at most: a lane or a machine that stands still takes a program's time
from nobody."""
PAGE_MB = os.sysconf("SC_PAGE_SIZE") / 2**20
CPUCLOCK_SCHED = 2
TICKS = os.sysconf("SC_CLK_TCK")


@dataclass
class Ending:
    """How a program ended."""

    stdout: bytearray = field(default_factory=bytearray)
    stderr: bytearray = field(default_factory=bytearray)
    exit_code: int | None = None
    cpu_s: float = 0.0
    limit: str | None = None


class Watch:
    """Over one program: its process `pid`, and its `outputs`, the pipes of stdout and stderr."""

    def __init__(
        self, pid: int, outputs: tuple[int, int], limits: dict[str, Any], *, boxed: bool
    ) -> None:
        self._pid = pid
        self._limits = limits
        self._boxed = boxed
        self._ending = Ending()
        self._kept = dict(zip(outputs, (self._ending.stdout, self._ending.stderr), strict=True))
        self._most = limits["output_kb"] * 1024
        self._left_s: float = limits["wall_s"]

    def until_its_end(self, connection: socket.socket) -> Ending:
        """Returns when no process of the program is left; ends this one with its owner's end of
        the connection."""
        ended = os.pidfd_open(self._pid)
        try:
            self._ending.limit = self._look_on(ended, connection)
        finally:
            os.close(ended)
            self._end_all()
        for descriptor, buffer in self._kept.items():
            os.set_blocking(descriptor, False)  # nobody writes to it any more
            with contextlib.suppress(BlockingIOError):
                while len(buffer) <= self._most and self._read(descriptor):
                    pass
            if len(buffer) > self._most:
                self._ending.limit = self._ending.limit or "output_kb"
                del buffer[self._most :]
        return self._ending

    def _look_on(self, ended: int, connection: socket.socket) -> str | None:
        """The limit that was reached, if any."""
        poll = select.poll()
        for descriptor in (ended, *self._kept):
            poll.register(descriptor, select.POLLIN)
        poll.register(connection, 0)
        looked = time.monotonic()
        next_look = looked + LOOK_EVERY_S
        while True:
            events = poll.poll(max(0.0, 1000 * (next_look - time.monotonic())))
            now = time.monotonic()
            self._left_s -= min(now - looked, LONGEST_LOOK_S)
            looked = now
            for descriptor, _ in events:
                if descriptor == ended:
                    return None
                if descriptor == connection.fileno():
                    self._end_all()
                    os._exit(0)
                if not self._read(descriptor):
                    poll.unregister(descriptor)
                elif len(self._kept[descriptor]) > self._most:
                    return "output_kb"
            if time.monotonic() >= next_look:
                if (limit := self._over()) is not None:
                    return limit
                next_look = time.monotonic() + min(LOOK_EVERY_S, self._left_s)

    def _read(self, descriptor: int) -> bytes:
        chunk = os.read(descriptor, CHUNK)
        self._kept[descriptor] += chunk
        return chunk

    def _over(self) -> str | None:
        """The limit that the program is over."""
        if self._left_s <= 0:
            return "wall_s"
        if _cpu_of(self._pid) >= self._limits["cpu_s"]:
            return "cpu_s"
        return self._over_together() if self._boxed else None

    def _over_together(self) -> str | None:
        """The limit that the processes of the program are over."""
        count, cpu_s, memory_mb = 0, self._ending.cpu_s, 0.0
        for pid in _others():
            with contextlib.suppress(OSError):  # it has just ended
                with open(f"/proc/{pid}/statm", "rb") as statm:
                    _, resident, shared, *_ = map(int, statm.read().split())
                with open(f"/proc/{pid}/stat", "rb") as stat:
                    times = stat.read().rpartition(b")")[2].split()[11:15]
                count, cpu_s = count + 1, cpu_s + sum(map(int, times)) / TICKS
                memory_mb += (resident - shared) * PAGE_MB
        if count < 2:
            return None  # the kernel counts for one
        if cpu_s >= self._limits["cpu_s"]:
            return "cpu_s"
        if memory_mb > self._limits["memory_mb"]:
            return "memory_mb"
        return "processes" if count > self._limits["processes"] else None

    def _end_all(self) -> None:
        """Kill and wait until nobody is left, wherever they have gone.

        Processes whose parent has ended are children of this one, the first in its box.
        """
        while (child := self._reap(os.WNOHANG)) is not None:
            if child == 0:
                _kill_others(self._boxed)
                self._reap(0)

    def _reap(self, options: int) -> int | None:
        """A process that has ended; 0 where none has, None where none is left."""
        try:
            child, status, used = os.wait4(-1, options)
        except ChildProcessError:
            return None
        self._ending.cpu_s += used.ru_utime + used.ru_stime
        if child == self._pid:
            self._ending.exit_code = os.waitstatus_to_exitcode(status)
        return child


def _cpu_of(pid: int) -> float:
    """Seconds that a process and its threads have used; it may be over, but is not reaped."""
    return time.clock_gettime((~pid << 3) | CPUCLOCK_SCHED)


def _others() -> Iterator[int]:
    """All processes of the box but this one."""
    me = os.getpid()
    return (int(name) for name in os.listdir("/proc") if name.isdigit() and int(name) != me)


def _kill_others(boxed: bool) -> None:
    if boxed:
        with contextlib.suppress(ProcessLookupError):
            os.kill(-1, signal.SIGKILL)  # of the first process in a box: all but itself
        return
    me = os.getpid()
    for pid in _others():
        with contextlib.suppress(OSError):
            with open(f"/proc/{pid}/stat", "rb") as stat:
                parent = int(stat.read().rpartition(b")")[2].split()[1])
            if parent == me:
                os.kill(pid, signal.SIGKILL)
