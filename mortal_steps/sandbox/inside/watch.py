"""Watch a program until it ends or reaches a limit, then end all of its processes."""

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
"""How often the processes of a program are counted."""
LONGEST_LOOK_S = 1.0
"""What one look counts for at most: a lane or a machine that stands still takes a program's time
from nobody."""
LEAST_LEFT_S = 0.02
"""Time for which a program that has waited for a core is let go on at its deadline."""
CPUCLOCK_SCHED = 2
TICKS = os.sysconf("SC_CLK_TCK")


@dataclass
class Ending:
    """How a program ended."""

    stdout: Text
    stderr: Text
    exit_code: int | None = None
    cpu_s: float = 0.0
    wall_s: float = 0.0
    """What counted for the limit of that name."""
    limit: str | None = None


class Watch:
    """Over one program: its process `pid`, and its `outputs`, the pipes of stdout and stderr."""

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
        """Returns when no process of the program is left; ends this one with its owner's end of
        the connection."""
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
        """The limit that the program is over."""
        if self._left_s <= 0:
            self._give_back_waiting()
            if self._left_s < LEAST_LEFT_S:
                return "wall_s"
        if _cpu_of(self._pid) >= self._limits["cpu_s"]:
            return "cpu_s"
        return self._over_together() if self._enclosure.counts else None

    def _give_back_waiting(self) -> None:
        """The time for which the program could have run and got no core is not its own.

        Where that never ends, its owner gives the lane up.
        """
        pids = [self._pid, *self._enclosure.others()] if self._enclosure.counts else [self._pid]
        more_s = max(0.0, max(map(_waited_s, pids)) - self._given_s)
        self._given_s += more_s
        self._left_s += more_s

    def _over_together(self) -> str | None:
        """The limit that the processes of the program are over."""
        count, cpu_s, memory_mb = 0, self._ending.cpu_s, 0.0
        for pid in self._enclosure.others():
            with contextlib.suppress(OSError):  # it has just ended
                held_mb = _memory_mb_of(pid)
                with open(f"/proc/{pid}/stat", "rb") as stat:
                    times = stat.read().rpartition(b")")[2].split()[11:15]
                count, cpu_s = count + 1, cpu_s + sum(map(int, times)) / TICKS
                memory_mb += held_mb
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
                self._enclosure.kill_others()
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


def _memory_mb_of(pid: int) -> float:
    """What a process holds that is not of files. What several share counts for each of them.

    Raises `OSError` where it has ended.
    """
    with open(f"/proc/{pid}/status", "rb") as status:
        said = dict(line.split(b":", 1) for line in status if line[:3] in (b"VmR", b"Rss"))
    resident, files = (said.get(name, b"0 kB").split()[0] for name in (b"VmRSS", b"RssFile"))
    return (int(resident) - int(files)) / 1024


def _waited_s(pid: int) -> float:
    """Seconds for which the thread of a process that waited longest was kept from running by
    others; 0 where the kernel does not count them."""
    waited = 0.0
    with contextlib.suppress(OSError):  # it has just ended
        for thread in os.listdir(f"/proc/{pid}/task"):
            with open(f"/proc/{pid}/task/{thread}/schedstat", "rb") as schedstat:
                waited = max(waited, int(schedstat.read().split()[1]) / 1e9)
    return waited
