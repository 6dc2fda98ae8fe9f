"""The timing table: how long a run's stages took."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from mortal_steps.report.units import byte_size
from mortal_steps.types import GenerationRef, StageTiming

STAGES = (
    "warm_start",
    "start_workers",
    "get_batch",
    "generate",
    "reward",
    "train_step",
    "sync_weights",
    "evaluate",
    "checkpoint",
)
"""The stages in the order in which a step passes through them."""


@dataclass(frozen=True, kw_only=True, slots=True)
class StageRow:
    """One line of the timing table."""

    stage: str
    """Name of the stage; for a part of the stage above it `<stage>: <part>`, such as `reward:
    exact_match`."""
    calls: int
    total_s: float
    """Seconds inside workers; parallel calls add up."""
    mean_s: float
    share: float
    """Part of all stages' total, 0 to 1."""
    wait_s: float
    """Seconds waiting for a free worker and for answers."""
    mean_bytes: float = 0.0
    """Size of what a call loaded or saved, where it is known."""
    in_background: bool = False
    """Whether threads did this beside the stages. No stage waited for it, and it is not part of any
    share."""

    @property
    def is_part(self) -> bool:
        """Whether it is a part of a stage above, which has no price of its own."""
        return self.stage not in STAGES


class StageTotals:
    """Adds up timings as they come; its size does not grow with the run."""

    def __init__(self) -> None:
        self._busy: dict[str, float] = defaultdict(float)
        self._wait: dict[str, float] = defaultdict(float)
        self._calls: dict[str, int] = defaultdict(int)
        self._bytes: dict[str, int] = defaultdict(int)
        self._parts: dict[str, dict[str, list[float]]] = defaultdict(dict)
        self._beside: dict[str, dict[str, list[float]]] = defaultdict(dict)

    def add(
        self,
        stage: str,
        busy_s: float,
        wait_s: float,
        functions: Mapping[str, float] | None = None,
        num_bytes: int = 0,
        background: Mapping[str, float] | None = None,
    ) -> None:
        """Add a call of a stage, with the seconds of each reward function and of work in the
        background."""
        self._bytes[stage] += num_bytes
        self._calls[stage] += 1
        self._busy[stage] += busy_s
        self._wait[stage] += wait_s
        for parts, spent in ((self._parts, functions), (self._beside, background)):
            for name, seconds in (spent or {}).items():
                part = parts[stage].setdefault(name, [0, 0.0])
                part[0] += 1
                part[1] += seconds

    def rows(self) -> list[StageRow]:
        """The table in the order of `STAGES`. The parts of a stage, which it includes, are below
        it."""
        found = []
        for stage in STAGES:
            if self._calls[stage]:
                calls, busy, wait = self._calls[stage], self._busy[stage], self._wait[stage]
                mean_bytes = self._bytes[stage] / calls
                found.append(self._row(stage, calls, busy, wait, mean_bytes))
                for name, (times, seconds) in self._parts[stage].items():
                    found.append(self._row(part_of(stage, name), int(times), seconds, 0.0))
                for name, (times, seconds) in self._beside[stage].items():
                    row = self._row(part_of(stage, name), int(times), seconds, 0.0)
                    found.append(replace(row, share=0.0, in_background=True))
        return found

    def _row(
        self, stage: str, calls: int, busy_s: float, wait_s: float, mean_bytes: float = 0.0
    ) -> StageRow:
        return StageRow(
            stage=stage,
            calls=calls,
            total_s=busy_s,
            mean_s=busy_s / calls,
            share=busy_s / (sum(self._busy.values()) or 1.0),
            wait_s=wait_s,
            mean_bytes=mean_bytes,
        )


def stage_totals(timings: Iterable[Mapping[str, Any]]) -> StageTotals:
    """The sums over rows of timings.jsonl."""
    totals = StageTotals()
    for timing in timings:
        totals.add(
            timing["stage"],
            timing["busy_s"],
            timing["wait_s"],
            timing.get("functions"),
            timing.get("num_bytes", 0),
            timing.get("background"),
        )
    return totals


def part_of(stage: str, name: str) -> str:
    """What the table calls a part of a stage: of a reward function, or of work in the background,
    by its name."""
    return f"{stage}: {name}"


def timing_row(timing: StageTiming) -> dict[str, Any]:
    """A line of timings.jsonl; what most timings have none of stands there where there is any."""
    rare = ("functions", "num_bytes", "sync_s", "background")
    return {k: v for k, v in asdict(timing).items() if v or k not in rare}


def generation_timings(generation: GenerationRef) -> Iterator[StageTiming]:
    """Of a shard, and of the sync of weights that its worker began with, if it did."""
    timing = generation.timing
    if timing.sync_s:
        yield replace(
            timing,
            stage="sync_weights",
            step=generation.policy_version,
            busy_s=timing.sync_s,
            wait_s=0.0,
            sync_s=0.0,
        )
        busy_s = max(0.0, timing.busy_s - timing.sync_s)
        timing = replace(timing, busy_s=busy_s, num_bytes=0, sync_s=0.0)
    yield timing


def table_cells(rows: Sequence[StageRow]) -> list[dict[str, str]]:
    """The table as text cells under the headings that users see; sizes where any is known."""
    sized = any(row.mean_bytes for row in rows)
    return [_cells(row, sized) for row in rows]


def _cells(row: StageRow, sized: bool) -> dict[str, str]:
    size = {"size": byte_size(row.mean_bytes) if row.mean_bytes else ""} if sized else {}
    return {
        "stage": row.stage,
        "calls": f"{row.calls}",
        "total": f"{row.total_s:.2f} s",
        "mean": f"{1000 * row.mean_s:.1f} ms",
        **size,
        "share": "beside" if row.in_background else f"{100 * row.share:.1f} %",
        "waiting": "" if row.in_background else f"{row.wait_s:.2f} s",
    }
