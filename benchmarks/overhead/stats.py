"""What the steps of a run cost, and its Prefect server: CPU time, bytes in the database."""

from __future__ import annotations

import contextlib
import sqlite3
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import psutil

from benchmarks.meter import Stamp, steps_between
from mortal.server.files import DATABASE, server_home

WARM_UP = 5
"""First steps of a run, left out."""
EARLY = 50
"""Step whose memory is compared with the last one's."""


class ServerStamp(NamedTuple):
    """The server at one moment."""

    cpu_s: float
    """CPU time of its processes."""
    database_bytes: int
    """Pages in use."""


@dataclass(frozen=True, kw_only=True, slots=True)
class RunStats:
    """One run."""

    steps: int
    step_ms: float
    """Median wall time of a step."""
    cpu_ms: float
    """Mean CPU time of the flow's process per step."""
    growth: float
    """Median step of the last fifth over that of the first fifth."""
    cpu_growth: float
    """Mean CPU time per step in the last fifth over that in the first fifth."""
    rss_early_mb: float
    """Resident memory at step 50 (or the last)."""
    rss_last_mb: float
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
    resident = [stamp.resident_mb for stamp in stamps]
    return RunStats(
        steps=steps,
        step_ms=statistics.median(walls),
        cpu_ms=statistics.fmean(cpus),
        growth=statistics.median(walls[-fifth:]) / statistics.median(walls[:fifth]),
        cpu_growth=statistics.fmean(cpus[-fifth:]) / statistics.fmean(cpus[:fifth]),
        rss_early_mb=resident[min(EARLY, len(stamps)) - 1],
        rss_last_mb=resident[-1],
        server_cpu_ms=1e3 * (after.cpu_s - before.cpu_s) / steps,
        database_mb_per_1000_steps=(after.database_bytes - before.database_bytes) / steps / 1e3,
    )


def server_stamp() -> ServerStamp:
    """Stamp this benchmark's server: between runs, its processes are our only children."""
    processes = psutil.Process().children(recursive=True)
    times = [process.cpu_times() for process in processes]
    return ServerStamp(
        cpu_s=sum(each.user + each.system for each in times),
        database_bytes=_database_bytes(),
    )


def _database_bytes() -> int:
    with _database() as database:
        pages, free, size = (
            int(database.execute(f"PRAGMA {name}").fetchone()[0])
            for name in ("page_count", "freelist_count", "page_size")
        )
    return (pages - free) * size


def _database() -> contextlib.closing[sqlite3.Connection]:
    path: Path = server_home() / DATABASE
    return contextlib.closing(sqlite3.connect(f"{path.as_uri()}?mode=ro", uri=True))
