"""Several lanes in parallel, each of which runs one program at a time.

Each lane has a thread that starts the lane and waits for it; a lane ends with its thread. If a lane
is lost, it is replaced and its program runs again; this is safe, because a program's result depends
only on its code and its input. A program that was killed from outside also runs again, because what
somebody else did to it must not become its score.
"""

import itertools
import logging
import math
import os
import signal
import threading
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Generic, TypeVar

from mortal_steps.errors import SandboxError
from mortal_steps.sandbox.base import AnyLane, ExecutionResult, Program
from mortal_steps.sandbox.lane import LaneLost
from mortal_steps.system.retry import backoff, retry

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


@dataclass(frozen=True, kw_only=True, slots=True)
class Row:
    """Programs that run one after another."""

    programs: Sequence[Program]
    go_on: Callable[[Results], bool] = lambda results: True
    """Given the results so far, whether to run the next program."""


class Pool(Generic[L]):
    """Runs programs. It may be used from any thread. `start` makes a lane or raises `LaneLost`; it
    is called when there is a program for one more lane. A program whose lanes are lost is given up
    `patience_s` seconds after its first lane was asked for."""

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
        self._begin()
        os.register_at_fork(after_in_child=self._begin)  # threads and lanes are the parent's

    def _begin(self) -> None:
        self._threads = ThreadPoolExecutor(self.num_lanes, thread_name_prefix="sandbox-lane")
        self._lanes: dict[int, L] = {}
        """The lane of each thread, by the thread's id."""

    def run(self, programs: Iterable[Program]) -> Results:
        """Return the result of each program, in the order given. Raises `SandboxError`."""
        rows = [Row(programs=[program]) for program in programs]
        return [results[0] for results in self.run_rows(rows)]

    def run_rows(self, rows: Iterable[Row]) -> list[Results]:
        """Run rows in parallel; returns the results of each row's programs. Raises `SandboxError`
        if one keeps losing lanes or no thread can be started."""
        futures: list[Future[Results]] = []
        try:
            try:
                for row in rows:
                    futures.append(self._threads.submit(self._run_row, row))
            except RuntimeError as error:  # the system allows no further thread
                raise SandboxError(f"the sandbox could not be started: {error}") from None
            return [future.result() for future in futures]
        except BaseException:
            for future in futures:
                future.cancel()  # nobody waits for those that have not begun
            raise

    def lanes(self) -> list[L]:
        return list(self._lanes.values())

    def close(self) -> None:
        """End all lanes after they have run the programs that are waiting."""
        self._threads.shutdown()
        for lane in self.lanes():
            lane.close()
        self._lanes.clear()

    def _run_row(self, row: Row) -> Results:
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
        """Return the result from this thread's lane, which is replaced when lost."""
        lost = 0

        def run() -> ExecutionResult:
            nonlocal lost
            try:
                return self._own_lane().run(program)
            except LaneLost as error:
                self._lanes.pop(threading.get_ident(), None)
                lost += 1
                logger.warning("a lane of the sandbox was lost and is replaced: %s", error)
                raise

        delays_s = itertools.islice(backoff(DELAY_S), ATTEMPTS - 1)
        try:
            return retry(run, on=LaneLost, delays_s=delays_s, for_s=self._patience_s)
        except LaneLost as error:
            times = "once" if lost == 1 else f"{lost} times"
            raise SandboxError(
                f"the sandbox was lost {times} with one program, last: {error}"
            ) from error

    def _own_lane(self) -> L:
        thread = threading.get_ident()
        if thread in self._lanes and self._lanes[thread].is_worn_out:
            self._lanes.pop(thread).close()
        if thread not in self._lanes:
            self._lanes[thread] = self._start_lane()
        return self._lanes[thread]
