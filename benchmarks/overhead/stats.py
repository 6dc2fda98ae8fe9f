"""From the stamps of a run to what its steps cost."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from benchmarks.overhead.meter import Stamp, steps_between
from benchmarks.overhead.server_meter import ServerStamp

WARM_UP = 5
"""First steps of a run, left out."""
EARLY = 50
"""Step whose memory is compared with the last one's."""


@dataclass(frozen=True, kw_only=True, slots=True)
class RunStats:
    """One run."""

    steps: int
    step_ms: float
    """Median wall time of a step."""
    mean_ms: float
    """Mean wall time of a step: evaluations, checkpoints and artifacts included."""
    cpu_ms: float
    """Mean CPU time of the flow's process per step."""
    growth: float
    """Median step of the last fifth over that of the first fifth."""
    cpu_growth: float
    """Mean CPU time per step in the last fifth over that in the first fifth."""
    rss_early_mb: float
    """Resident memory at step 50 (or the last)."""
    rss_last_mb: float
    rss_mb_per_100_steps: float
    """Slope over the second half of the run."""
    workers_cpu_ms: float
    """Mean CPU time of the worker processes per step."""
    server_cpu_ms: float
    """CPU time of the Prefect server per step, its writing afterwards included."""
    database_mb_per_1000_steps: float
    """What the server's database grew by."""


def run_stats(
    steps: int,
    stamps: Sequence[Stamp],
    before: ServerStamp,
    after: ServerStamp,
    warm_up: int = WARM_UP,
) -> RunStats:
    """Differences between consecutive stamps, the first few left out."""
    measured = steps_between(stamps, warm_up=warm_up)
    walls = [step.wall_ms for step in measured]
    cpus = [step.cpu_ms for step in measured]
    fifth = max(1, len(walls) // 5)
    late = stamps[len(stamps) // 2 :]
    resident = [stamp.resident_mb for stamp in stamps]
    slope = statistics.linear_regression(range(len(late)), resident[-len(late) :]).slope
    return RunStats(
        steps=steps,
        step_ms=statistics.median(walls),
        mean_ms=statistics.fmean(walls),
        cpu_ms=statistics.fmean(cpus),
        growth=statistics.median(walls[-fifth:]) / statistics.median(walls[:fifth]),
        cpu_growth=statistics.fmean(cpus[-fifth:]) / statistics.fmean(cpus[:fifth]),
        rss_early_mb=resident[min(EARLY, len(stamps)) - 1],
        rss_last_mb=resident[-1],
        rss_mb_per_100_steps=100 * slope,
        workers_cpu_ms=statistics.fmean(step.workers_cpu_ms for step in measured),
        server_cpu_ms=1e3 * (after.cpu_s - before.cpu_s) / steps,
        database_mb_per_1000_steps=(after.database_bytes - before.database_bytes) / steps / 1e3,
    )
