"""Several lanes in parallel, each of which runs one program at a time.

Each lane has a thread that starts the lane and waits for it. If a lane is lost, it is replaced and
its program runs again; this is safe, because a program's result depends only on its code and its
input. A program that was killed from outside also runs again, because what somebody else did to it
must not become its score.
"""

from __future__ import annotations

import contextlib
import logging
import math
import os
import queue
import signal
import threading
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Generic, TypeVar

from mortal_steps.errors import SandboxError
from mortal_steps.sandbox.base import AnyLane, ExecutionResult, Program
from mortal_steps.sandbox.lane import LaneLost
from mortal_steps.system.retry import retry

ATTEMPTS = 3
"""How many lanes one program may lose; the last loss is an error."""
DELAY_S = 0.2
"""Seconds before a lost lane is replaced, doubled for each further lane that the same program
loses."""

OTHERS_SEND = (-signal.SIGKILL, -signal.SIGTERM, -signal.SIGHUP)
"""Exit codes of a program that may have been killed from outside: by a user, or by a machine that
shuts down or runs out of memory. A program that kills itself will do so again."""

logger = logging.getLogger(__name__)

Results = list[ExecutionResult]
L = TypeVar("L", bound=AnyLane)


def _always(results: Results) -> bool:
    return True


@dataclass(frozen=True, kw_only=True, slots=True)
class Row:
    """Programs that run one after another."""

    programs: Sequence[Program]
    go_on: Callable[[Results], bool] = _always
    """Given the results so far, whether to run the next program."""


class Pool(Generic[L]):
    """Runs programs. It may be used from any thread.

    `start` makes a lane or raises `LaneLost`; it is called when the first program arrives. A
    program whose lanes are lost is given up `patience_s` seconds after its first lane was asked
    for.
    """

    def __init__(
        self,
        start: Callable[[], L],
        num_lanes: int,
        *,
        patience_s: float = math.inf,
    ) -> None:
        self._start_lane = start
        self._patience_s = patience_s
        self.num_lanes = num_lanes
        self._jobs: queue.SimpleQueue[tuple[Row, Future[Results]] | None] = queue.SimpleQueue()
        self._starting = threading.Lock()
        self._threads: list[threading.Thread] = []
        self._runners: list[_Runner[L]] = []
        self._pid = os.getpid()

    def run(self, programs: Iterable[Program]) -> Results:
        """The result of each program, in the order given. Raises `SandboxError`."""
        rows = [Row(programs=[program]) for program in programs]
        return [results[0] for results in self.run_rows(rows)]

    def run_rows(self, rows: Iterable[Row]) -> list[Results]:
        """Run the rows in parallel. Returns, for each row, the results of the programs that ran.

        Raises `SandboxError` if a program keeps losing its lanes or no thread can be started.
        """
        self._start()
        futures: list[Future[Results]] = []
        for row in rows:
            futures.append(Future())
            self._jobs.put((row, futures[-1]))
        return [future.result() for future in futures]

    def lanes(self) -> list[L]:
        """The lanes that have started."""
        return [lane for runner in self._runners if (lane := runner.lane) is not None]

    def close(self) -> None:
        """End all lanes after they have run the programs that are waiting."""
        with self._starting:
            threads, self._threads = self._threads, []
        for _ in threads:
            self._jobs.put(None)
        for thread in threads:
            thread.join()

    def _start(self) -> None:
        with self._starting:
            if self._pid != os.getpid():  # forked: the threads and lanes belong to the parent
                self._jobs, self._threads, self._runners = queue.SimpleQueue(), [], []
                self._pid = os.getpid()
            while len(self._threads) < self.num_lanes:
                number = len(self._threads)
                thread = threading.Thread(
                    target=self._serve, name=f"sandbox-lane-{number}", daemon=True
                )
                try:
                    thread.start()
                except RuntimeError as error:  # the system allows no further thread
                    raise SandboxError(f"the sandbox could not be started: {error}") from None
                self._threads.append(thread)

    def _serve(self) -> None:
        """Serve one lane, from its first job to the end of the pool."""
        runner = _Runner(self._start_lane, self._patience_s)
        self._runners.append(runner)
        with contextlib.closing(runner):
            while (job := self._jobs.get()) is not None:
                row, future = job
                try:
                    future.set_result(runner.run_row(row))
                except BaseException as error:  # noqa: BLE001 - raised where the result is awaited
                    future.set_exception(error)


class _Runner(Generic[L]):
    """A lane that is replaced when it is lost."""

    def __init__(self, start: Callable[[], L], patience_s: float) -> None:
        self._start = start
        self._patience_s = patience_s
        self.lane: L | None = None

    def run_row(self, row: Row) -> Results:
        results: Results = []
        for program in row.programs:
            results.append(self._run(program))
            if not row.go_on(results):
                break
        return results

    def _run(self, program: Program) -> ExecutionResult:
        result = self._run_in_a_lane(program)
        if result.limit is None and result.exit_code in OTHERS_SEND:
            logger.warning("a program was killed (exit code %d) and runs again", result.exit_code)
            result = self._run_in_a_lane(program)
        return result

    def _run_in_a_lane(self, program: Program) -> ExecutionResult:
        lost = 0

        def run() -> ExecutionResult:
            nonlocal lost
            try:
                return self._fresh_lane().run(program)
            except LaneLost as error:
                self.lane, lost = None, lost + 1
                logger.warning("a lane of the sandbox was lost and is replaced: %s", error)
                raise

        delays_s = [DELAY_S * 2**number for number in range(ATTEMPTS - 1)]
        try:
            return retry(run, on=LaneLost, delays_s=delays_s, for_s=self._patience_s)
        except LaneLost as error:
            times = "once" if lost == 1 else f"{lost} times"
            told = f"the sandbox was lost {times} with one program, last: {error}"
            raise SandboxError(told) from error

    def _fresh_lane(self) -> L:
        if self.lane is not None and self.lane.is_worn_out:
            self.close()
        self.lane = self.lane or self._start()
        return self.lane

    def close(self) -> None:
        lane, self.lane = self.lane, None
        if lane is not None:
            lane.close()
