"""Lanes beside each other: as many programs at a time as there are cores.

Each lane has a thread, which starts the lane's server and waits for it. A lane that is lost is
replaced and its program run again: a program is a function of its text and its input.
"""

from __future__ import annotations

import contextlib
import logging
import os
import queue
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass

from mortal_steps.errors import SandboxError
from mortal_steps.sandbox.base import ExecutionResult, Program
from mortal_steps.sandbox.box import Way
from mortal_steps.sandbox.lane import Lane, LaneLost

ATTEMPTS = 3
"""Lanes that a program may lose before that is an error."""
DELAY_S = 0.2
"""Before a lost lane is replaced; doubled for each that the same program has lost."""

logger = logging.getLogger(__name__)

Results = list[ExecutionResult]


def _always(results: Results) -> bool:
    return True


@dataclass(frozen=True, kw_only=True, slots=True)
class Row:
    """Programs to run one after the other."""

    programs: Sequence[Program]
    go_on: Callable[[Results], bool] = _always
    """Whether to run the next one, after these."""


class Pool:
    """Runs programs; any thread may ask. Lanes start with the first program."""

    def __init__(self, way: Way, num_lanes: int | None = None) -> None:
        self._way = way
        self.num_lanes = num_lanes or len(os.sched_getaffinity(0))
        self._jobs: queue.SimpleQueue[tuple[Row, Future[Results]] | None] = queue.SimpleQueue()
        self._starting = threading.Lock()
        self._threads: list[threading.Thread] = []
        self._runners: list[_Runner] = []
        self._pid = os.getpid()

    def run(self, programs: Iterable[Program]) -> Results:
        """What came of each, in their order; raises `SandboxError`."""
        rows = [Row(programs=[program]) for program in programs]
        return [results[0] for results in self.run_rows(rows)]

    def run_rows(self, rows: Iterable[Row]) -> list[Results]:
        """Rows beside each other; of each, what came of its programs as far as it went.

        Raises `SandboxError`.
        """
        self._start()
        futures: list[Future[Results]] = []
        for row in rows:
            futures.append(Future())
            self._jobs.put((row, futures[-1]))
        return [future.result() for future in futures]

    def lane_pids(self) -> list[int]:
        """Outermost processes of the lanes that have started."""
        return [lane.pid for runner in self._runners if (lane := runner.lane) is not None]

    def close(self) -> None:
        """End all lanes, once they have run what is waiting."""
        with self._starting:
            threads, self._threads = self._threads, []
        for _ in threads:
            self._jobs.put(None)
        for thread in threads:
            thread.join()

    def _start(self) -> None:
        with self._starting:
            if self._pid != os.getpid():  # forked: threads and lanes are the other process's
                self._jobs, self._threads, self._runners = queue.SimpleQueue(), [], []
                self._pid = os.getpid()
            while len(self._threads) < self.num_lanes:
                name = f"sandbox-lane-{len(self._threads)}"
                thread = threading.Thread(target=self._serve, name=name, daemon=True)
                try:
                    thread.start()
                except RuntimeError as error:  # there is no room for another one
                    raise SandboxError(f"the sandbox could not be started: {error}") from None
                self._threads.append(thread)

    def _serve(self) -> None:
        """One lane, from its first job to the end of the pool."""
        runner = _Runner(self._way)
        self._runners.append(runner)
        with contextlib.closing(runner):
            while (job := self._jobs.get()) is not None:
                row, future = job
                try:
                    future.set_result(runner.run_row(row))
                except BaseException as error:  # noqa: BLE001 - it is raised where the job is from
                    future.set_exception(error)


class _Runner:
    """A lane that is replaced when it is lost."""

    def __init__(self, way: Way) -> None:
        self._way = way
        self.lane: Lane | None = None

    def run_row(self, row: Row) -> Results:
        results: Results = []
        for program in row.programs:
            results.append(self._run(program))
            if not row.go_on(results):
                break
        return results

    def _run(self, program: Program) -> ExecutionResult:
        for attempt in range(ATTEMPTS):
            if attempt:
                time.sleep(DELAY_S * 2 ** (attempt - 1))
            try:
                self.lane = self.lane or Lane(self._way)
                return self.lane.run(program)
            except LaneLost as lost:
                self.lane, how = None, str(lost)
                logger.warning("a lane of the sandbox was lost and is replaced: %s", how)
        raise SandboxError(f"the sandbox was lost {ATTEMPTS} times with one program, last: {how}")

    def close(self) -> None:
        if self.lane is not None:
            self.lane.close()
