"""The process that compares: it imports SymPy once, and forks a process for each sheet.

A fork starts from the same state each time, so what a comparison finds does not depend on other
sheets. The kernel limits its memory (RLIMIT_AS), and the CPU time of each comparison: SIGPROF ends
it, whatever its code is at. What was left on the sheet goes to a new fork.

Started by `MathProcess` as `python -m mortal_steps.rewards.mathematics.server FD`.
"""

from __future__ import annotations

import contextlib
import gc
import itertools
import os
import resource
import select
import signal
import socket
import sys
import time
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NoReturn

from mortal_steps.rewards.mathematics.comparing import compare
from mortal_steps.rewards.mathematics.verdicts import Batch, Comparison, Verdict
from mortal_steps.system.cores import num_cores
from mortal_steps.system.frames import HEADER, receive_frame
from mortal_steps.system.limits import limit_memory

MEMORY = 512 * 2**20
"""Bytes that a sheet may take beside what SymPy takes; common ones take a tenth of it."""

STARVED = 20.0
"""How many times its CPU time a comparison may last before it counts as lost: it got none."""

FROM_OUTSIDE = (signal.SIGKILL, signal.SIGTERM, signal.SIGHUP)
"""Signals that no comparison ends itself with."""

WARM_UP = (
    ("1/2", r"The answer is $\frac{1}{2}$."),
    ("2", r"\boxed{1,234.5}"),
    (r"x^2+2x", r"$x(x+2)$"),
    (r"\{1, 2\}", r"$x=1$ or $x=2$"),
    (r"[0, 1)", r"$\sqrt{2}\pi$"),
    ("10", "so 3 + 4 = 7"),
)
"""Compared once at the start: the first use of a rule of the grammar is a slow one."""


def serve(connection: socket.socket) -> None:
    """Answer batches, one byte a comparison, until the owner closes the connection."""
    while True:
        batch: Batch = receive_frame(connection)
        verdicts = _Round(connection, batch).run()
        connection.sendall(HEADER.pack(len(verdicts)) + bytes(verdicts))


@dataclass(kw_only=True, slots=True)
class _Sheet:
    """Where a sheet stands."""

    left: deque[tuple[int, Comparison]]
    """What is to compare, with its place in the answer."""
    pid: int = 0
    until: float = 0.0
    """When the comparison that runs counts as lost, on the monotonic clock."""


class _Round:
    """The sheets of a batch, as many at a time as there are cores."""

    def __init__(self, connection: socket.socket, batch: Batch) -> None:
        self._connection = connection
        self._cpu_s = batch.cpu_s
        places = itertools.count()
        sheets = [deque((next(places), one) for one in sheet) for sheet in batch.sheets]
        self._verdicts = [Verdict.LOST] * sum(map(len, sheets))
        self._waiting = deque(_Sheet(left=left) for left in sheets if left)
        self._running: dict[int, _Sheet] = {}

    def run(self) -> list[Verdict]:
        """The verdict of each comparison. Raises `EOFError` when the owner is gone."""
        lanes = num_cores()
        while self._waiting or self._running:
            while self._waiting and len(self._running) < lanes:
                self._begin(self._waiting.popleft())
            self._await_some()
        return self._verdicts

    def _begin(self, sheet: _Sheet) -> None:
        ours, theirs = os.pipe()
        sheet.pid = os.fork()
        if sheet.pid == 0:
            self._connection.close()
            _work_through(theirs, [comparison for _, comparison in sheet.left], self._cpu_s)
        os.close(theirs)
        self._running[ours] = sheet
        self._expect_next(sheet)

    def _expect_next(self, sheet: _Sheet) -> None:
        sheet.until = time.monotonic() + STARVED * self._cpu_s

    def _await_some(self) -> None:
        left = min(sheet.until for sheet in self._running.values()) - time.monotonic()
        watched: list[socket.socket | int] = [self._connection, *self._running]
        ready, _, _ = select.select(watched, [], [], max(0.0, left))
        if self._connection in ready:  # it asks once at a time, so this is its end
            for sheet in self._running.values():
                os.kill(sheet.pid, signal.SIGKILL)
            raise EOFError
        now = time.monotonic()
        for descriptor, sheet in list(self._running.items()):
            found = os.read(descriptor, 1024) if descriptor in ready else b""
            for code in found:
                place, _ = sheet.left.popleft()
                self._verdicts[place] = Verdict(code)
            if found:
                self._expect_next(sheet)
            elif descriptor in ready or sheet.until <= now:
                self._end(descriptor, sheet)

    def _end(self, descriptor: int, sheet: _Sheet) -> None:
        """The process of a sheet has ended, or does so here."""
        del self._running[descriptor]
        os.close(descriptor)
        os.kill(sheet.pid, signal.SIGKILL)  # of no effect on one that has ended
        _, status = os.waitpid(sheet.pid, 0)
        if sheet.left:
            place, _ = sheet.left.popleft()
            self._verdicts[place] = verdict_of(os.waitstatus_to_exitcode(status))
        rest = list(sheet.left)
        middle = (len(rest) + 1) // 2  # in two, so that cores share a sheet that is full of those
        parts = (rest[:middle], rest[middle:])
        self._waiting.extend(_Sheet(left=deque(part)) for part in parts if part)


def verdict_of(code: int) -> Verdict:
    """Of the comparison that a process ended in with this exit code; below 0: by that signal."""
    if code == -signal.SIGPROF:
        return Verdict.OUT_OF_TIME
    return Verdict.LOST if -code in FROM_OUTSIDE else Verdict.CRASHED


def _work_through(findings: int, comparisons: Sequence[Comparison], cpu_s: float) -> NoReturn:
    """Compare in turn and write a byte for each finding."""
    try:
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        limit_memory(MEMORY)
        for comparison in comparisons:
            signal.setitimer(signal.ITIMER_PROF, cpu_s)
            os.write(findings, bytes([compare(comparison)]))
    except BaseException:  # noqa: BLE001 - whatever it is, SymPy could not bear what was written
        os._exit(1)
    os._exit(0)


def main() -> None:
    """Serve on the inherited socket."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # of a terminal; the owner's end is the end
    signal.signal(signal.SIGPROF, signal.SIG_DFL)
    for gold, said in WARM_UP:
        compare(Comparison(gold=gold, said=said))
    gc.collect()
    gc.freeze()  # so that a collection in a fork does not copy all pages
    with socket.socket(fileno=int(sys.argv[1])) as connection, contextlib.suppress(EOFError):
        serve(connection)


if __name__ == "__main__":
    main()
