"""Watches a program until it ends or reaches a limit, then ends all of its processes."""

from __future__ import annotations

import contextlib
import os
import select
import time
from dataclasses import dataclass
from typing import Any

from .enclosure import Box
from .wire import Connection, Text

LOOK_EVERY_S = 0.05
"""Seconds between two looks at a program's processes."""
LONGEST_LOOK_S = 1.0
"""The most seconds that one look may take off a program's time: the program must not pay for a
lane or a machine that was suspended."""
LEAST_LEFT_S = 0.02
"""At its deadline, a program goes on if waiting for a core has cost it at least this many
seconds."""
CPUCLOCK_SCHED = 2
TICKS = os.sysconf("SC_CLK_TCK")


@dataclass
class Ending:
    """How a program ended."""

    stdout: Text
    stderr: Text
    exit_code: int | None = None
    """A negative number is the signal that killed it."""
    cpu_s: float = 0.0
    """Seconds of CPU time that its processes used."""
    wall_s: float = 0.0
    """Seconds that counted towards the limit of that name."""
    limit: str | None = None
    """Name of the limit that it exceeded."""


class Watch:
    """Watches the program with first process `pid` and output descriptors `outputs`."""

    def __init__(
        self, pid: int, outputs: tuple[int, int], limits: dict[str, Any], enclosure: Box
    ) -> None:
        self._pid = pid
        self._limits = limits
        self._enclosure = enclosure
        most = limits["output_kb"] * 1024
        self._ending = Ending(stdout=Text(most), stderr=Text(most))
        self._kept = dict(zip(outputs, (self._ending.stdout, self._ending.stderr), strict=True))
        self._left_s: float = limits["wall_s"]
        self._given_s = 0.0

    def until_its_end(self, connection: Connection) -> Ending:
        """Watch until no process is left; both end if the owner closes the connection."""
        try:
            with self._enclosure.end_of(self._pid) as ended:
                self._ending.limit = self._look_on(ended, connection)
                self._give_back_waiting()
                self._ending.wall_s = max(0.0, self._limits["wall_s"] - self._left_s)
        finally:
            self._end_all()
        for descriptor, text in self._kept.items():
            os.set_blocking(descriptor, False)  # nobody writes to it any more
            with contextlib.suppress(BlockingIOError):
                while not text.is_too_long and text.read_from(descriptor):
                    pass
            if text.is_too_long:
                self._ending.limit = self._ending.limit or "output_kb"
        return self._ending

    def _look_on(self, ended: int, connection: Connection) -> str | None:
        """Watch until the first process ends or a limit, which is returned, is reached."""
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
                    if self._enclosure.has_ended(ended, self._pid):
                        return None
                    continue
                if descriptor == connection.fileno():
                    self._end_all()
                    os._exit(0)
                if not self._kept[descriptor].read_from(descriptor):
                    poll.unregister(descriptor)
                elif self._kept[descriptor].is_too_long:
                    return "output_kb"
            if time.monotonic() >= next_look:
                if (limit := self._over()) is not None:
                    return limit
                next_look = time.monotonic() + min(LOOK_EVERY_S, self._left_s)

    def _over(self) -> str | None:
        """Name of the limit that the program exceeds now, or None."""
        if self._left_s <= 0:
            self._give_back_waiting()
            if self._left_s < LEAST_LEFT_S:
                return "wall_s"
        if _cpu_of(self._pid) >= self._limits["cpu_s"]:
            return "cpu_s"
        return self._over_together() if self._enclosure.counts else None

    def _give_back_waiting(self) -> None:
        """Give back the time that the program was ready to run without a core; if it never gets
        one, the lane's owner gives up."""
        pids = [self._pid, *self._enclosure.others()] if self._enclosure.counts else [self._pid]
        more_s = max(0.0, max(map(_waited_s, pids)) - self._given_s)
        self._given_s += more_s
        self._left_s += more_s

    def _over_together(self) -> str | None:
        """Name of the limit that the processes of the program exceed together, or None."""
        count, cpu_s, memory_mb = 0, self._ending.cpu_s, 0.0
        for pid in self._enclosure.others():
            with contextlib.suppress(OSError):  # it has just ended
                process_mb = _memory_mb_of(pid)
                with open(f"/proc/{pid}/stat", "rb") as stat:
                    times = stat.read().rpartition(b")")[2].split()[11:15]
                count, cpu_s = count + 1, cpu_s + sum(map(int, times)) / TICKS
                memory_mb += process_mb
        if count < 2:
            return None  # the kernel enforces the limits of a single process
        if cpu_s >= self._limits["cpu_s"]:
            return "cpu_s"
        if memory_mb > self._limits["memory_mb"]:
            return "memory_mb"
        return "processes" if count > self._limits["processes"] else None

    def _end_all(self) -> None:
        """Kill the program's processes until none is left; orphans become children of this one."""
        while (child := self._reap(os.WNOHANG)) is not None:
            if child == 0:
                self._enclosure.kill_others()
                self._reap(0)

    def _reap(self, options: int) -> int | None:
        """Return the id of a process that has ended; 0 if none has, None if no process is left."""
        try:
            child, status, used = os.wait4(-1, options)
        except ChildProcessError:
            return None
        self._ending.cpu_s += used.ru_utime + used.ru_stime
        if child == self._pid:
            self._ending.exit_code = os.waitstatus_to_exitcode(status)
        return child


def _cpu_of(pid: int) -> float:
    """Seconds of CPU time that a process and its threads have used. The process may have ended, but
    must not have been reaped."""
    return time.clock_gettime((~pid << 3) | CPUCLOCK_SCHED)


def _memory_mb_of(pid: int) -> float:
    """MiB that a process holds, without mapped files; shared memory counts for each. Raises
    `OSError` if it has ended."""
    with open(f"/proc/{pid}/status", "rb") as status:
        fields = dict(line.split(b":", 1) for line in status if line[:3] in (b"VmR", b"Rss"))
    resident, files = (fields.get(name, b"0 kB").split()[0] for name in (b"VmRSS", b"RssFile"))
    return (int(resident) - int(files)) / 1024


def _waited_s(pid: int) -> float:
    """Seconds for which a process was ready to run but got no core; of its threads, the one that
    waited longest. 0 if the kernel does not count them."""
    waited = 0.0
    with contextlib.suppress(OSError):  # it has just ended
        for thread in os.listdir(f"/proc/{pid}/task"):
            with open(f"/proc/{pid}/task/{thread}/schedstat", "rb") as schedstat:
                waited = max(waited, int(schedstat.read().split()[1]) / 1e9)
    return waited
