"""From the stamps of single runs to what orchestration costs."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from benchmarks.overhead.meter import Stamp, steps_between
from benchmarks.overhead.server_meter import ServerStamp

WARM_UP = 5
"""First steps of a run, left out."""
EARLY = 50
"""Step whose memory is compared with the last one's."""


@dataclass(frozen=True, kw_only=True, slots=True)
class RunStats:
    """One run of one variant."""

    variant: str
    steps: int
    round: int
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
    variant: str,
    steps: int,
    number: int,
    stamps: Sequence[Stamp],
    before: ServerStamp,
    after: ServerStamp,
) -> RunStats:
    """Differences between consecutive stamps, the first few left out."""
    measured = steps_between(stamps, warm_up=WARM_UP)
    walls = [step.wall_ms for step in measured]
    cpus = [step.cpu_ms for step in measured]
    fifth = max(1, len(walls) // 5)
    late = stamps[len(stamps) // 2 :]
    resident = [stamp.resident_mb for stamp in stamps]
    slope = statistics.linear_regression(range(len(late)), resident[-len(late) :]).slope
    return RunStats(
        variant=variant,
        steps=steps,
        round=number,
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


@dataclass(frozen=True, kw_only=True, slots=True)
class Beside:
    """One figure of orchestration beside the floor's."""

    what: str
    flow: float
    floor: float
    ratio: float
    """Median over the rounds."""
    before: float | None
    """Of the flow of an earlier commit, if it was measured."""
    before_ratio: float | None


@dataclass(frozen=True, kw_only=True, slots=True)
class Overhead:
    """Orchestration of one length of run: medians over its rounds."""

    steps: int
    task_runs_per_step: int
    figures: list[Beside]
    persisted_ms_per_task_run: float
    """What keeping a result adds to a task run: wall time."""
    persisted_cpu_ms_per_task_run: float


Round = Mapping[str, RunStats]


def overhead(runs: Sequence[RunStats], *, task_runs_per_step: int, kept_per_step: int) -> Overhead:
    """Compare the variants round by round, then take the median round."""
    rounds: dict[int, dict[str, RunStats]] = {}
    for run in runs:
        rounds.setdefault(run.round, {})[run.variant] = run
    whole = [by for by in rounds.values() if {"flow", "bare", "floor", "persisted"} <= set(by)]

    def kept(what: str) -> float:
        more = (getattr(by["persisted"], what) - getattr(by["floor"], what) for by in whole)
        return statistics.median(more) / kept_per_step

    return Overhead(
        steps=runs[0].steps,
        task_runs_per_step=task_runs_per_step,
        figures=[
            _beside(whole, "wall time, ms a step", "step_ms"),
            _beside(whole, "CPU of flow - bare, ms a step", "cpu_ms", less=True),
            _beside(whole, "CPU of the server, ms a step", "server_cpu_ms"),
            _beside(whole, "database, MB per 1,000 steps", "database_mb_per_1000_steps"),
        ],
        persisted_ms_per_task_run=kept("step_ms"),
        persisted_cpu_ms_per_task_run=kept("cpu_ms"),
    )


def _beside(whole: Sequence[Round], title: str, what: str, *, less: bool = False) -> Beside:
    """`less`: what the bare loop takes is not the flow's orchestration."""

    def of(by: Round, variant: str) -> float:
        own: float = getattr(by[variant], what)
        return own - getattr(by["bare"], what) if less and variant != "floor" else own

    def middle(variant: str) -> float:
        return statistics.median(of(by, variant) for by in whole)

    def ratio(variant: str) -> float:
        return statistics.median(of(by, variant) / of(by, "floor") for by in whole)

    earlier = all("before" in by for by in whole)
    return Beside(
        what=title,
        flow=middle("flow"),
        floor=middle("floor"),
        ratio=ratio("flow"),
        before=middle("before") if earlier else None,
        before_ratio=ratio("before") if earlier else None,
    )


def averages(runs: Sequence[RunStats]) -> Mapping[tuple[int, str], dict[str, float]]:
    """Median over the rounds of each figure, by length and variant."""
    figures = [name for name in RunStats.__slots__ if name not in ("variant", "steps", "round")]
    groups: dict[tuple[int, str], list[RunStats]] = {}
    for run in runs:
        groups.setdefault((run.steps, run.variant), []).append(run)
    return {
        key: {name: statistics.median(getattr(run, name) for run in group) for name in figures}
        for key, group in groups.items()
    }
