"""Clock, CPU and memory of this process at the start of every step."""

import itertools
import time
from collections.abc import Sequence
from typing import NamedTuple

import psutil

WORKERS_UP = 2
"""Steps after which every worker process has started."""


class Stamp(NamedTuple):
    """What a step began with."""

    wall_s: float
    cpu_s: float
    """CPU time of this process."""
    resident_mb: float
    workers_cpu_s: float
    """CPU time of the processes below this one, from the third step on."""


class Step(NamedTuple):
    """What passed from one stamp to the next, in milliseconds."""

    wall_ms: float
    cpu_ms: float
    workers_cpu_ms: float


def steps_between(stamps: Sequence[Stamp], *, warm_up: int) -> list[Step]:
    """Every step but the first `warm_up`, in which caches fill and connections open."""
    return [
        Step(
            wall_ms=1e3 * (end.wall_s - begin.wall_s),
            cpu_ms=1e3 * (end.cpu_s - begin.cpu_s),
            workers_cpu_ms=1e3 * (end.workers_cpu_s - begin.workers_cpu_s),
        )
        for begin, end in itertools.pairwise(stamps[warm_up:])
    ]


class StepMeter:
    """Collects one stamp per step."""

    def __init__(self) -> None:
        self.stamps: list[Stamp] = []
        self._process = psutil.Process()
        self._workers: list[psutil.Process] = []

    def mark(self) -> None:
        """Stamp the start of a step."""
        if len(self.stamps) == WORKERS_UP:
            self._workers = self._process.children(recursive=True)
        times = [worker.cpu_times() for worker in self._workers]
        self.stamps.append(
            Stamp(
                wall_s=time.perf_counter(),
                cpu_s=time.process_time(),
                resident_mb=self._process.memory_info().rss / 2**20,
                workers_cpu_s=sum(each.user + each.system for each in times),
            )
        )
