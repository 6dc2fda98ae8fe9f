"""Where the time went, by stage."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

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
"""In the order a step goes through them."""


@dataclass(frozen=True, kw_only=True, slots=True)
class StageRow:
    """One line of the timing table."""

    stage: str
    calls: int
    total_s: float
    """Seconds inside workers; parallel calls add up."""
    mean_s: float
    share: float
    """Part of all stages' total, 0 to 1."""
    wait_s: float
    """Seconds waiting for a free worker and for answers."""


class StageTotals:
    """Adds timings up as they come; its size does not grow with the run."""

    def __init__(self) -> None:
        self._busy: dict[str, float] = defaultdict(float)
        self._wait: dict[str, float] = defaultdict(float)
        self._calls: dict[str, int] = defaultdict(int)

    def add(self, stage: str, busy_s: float, wait_s: float) -> None:
        """One call of a stage."""
        self._calls[stage] += 1
        self._busy[stage] += busy_s
        self._wait[stage] += wait_s

    def rows(self) -> list[StageRow]:
        """The table, in the order of `STAGES`."""
        everything = sum(self._busy.values()) or 1.0
        return [
            StageRow(
                stage=stage,
                calls=self._calls[stage],
                total_s=self._busy[stage],
                mean_s=self._busy[stage] / self._calls[stage],
                share=self._busy[stage] / everything,
                wait_s=self._wait[stage],
            )
            for stage in STAGES
            if self._calls[stage]
        ]


def stage_totals(timings: Iterable[Mapping[str, Any]]) -> StageTotals:
    """Rows of timings.jsonl added up."""
    totals = StageTotals()
    for timing in timings:
        totals.add(timing["stage"], timing["busy_s"], timing["wait_s"])
    return totals


def table_cells(rows: Iterable[StageRow]) -> list[dict[str, str]]:
    """The table as text cells under the headings that users see."""
    return [
        {
            "stage": row.stage,
            "calls": f"{row.calls}",
            "total": f"{row.total_s:.2f} s",
            "mean": f"{1000 * row.mean_s:.1f} ms",
            "share": f"{100 * row.share:.1f} %",
            "waiting": f"{row.wait_s:.2f} s",
        }
        for row in rows
    ]
