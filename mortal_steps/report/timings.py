"""The timing table: how long a run's stages took."""

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
STAGES_OF_A_STEP = ("get_batch", "generate", "reward", "train_step")
"""Stages whose timings belong to the step being taken, counted from 0. The timings of other stages
belong to the number of steps done."""
BEFORE_A_STEP = ("start_workers", "sync_weights")
"""Of these, the ones that a run begins with."""


@dataclass(frozen=True, kw_only=True, slots=True)
class StageRow:
    """One line of the timing table."""

    stage: str
    """The stage; for a part of the one above `<stage>: <part>`, such as `reward: exact_match`."""
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
    """Whether threads did this beside the stages: no stage waited for it, and no share has it."""

    @property
    def is_part(self) -> bool:
        """Return whether it is a part of a stage above, which has no price of its own."""
        return self.stage not in STAGES


@dataclass(slots=True)
class _Sum:
    calls: int = 0
    busy_s: float = 0.0
    wait_s: float = 0.0
    num_bytes: int = 0

    def add(self, busy_s: float, wait_s: float = 0.0, num_bytes: int = 0) -> None:
        self.calls += 1
        self.busy_s += busy_s
        self.wait_s += wait_s
        self.num_bytes += num_bytes


def stage_rows(timings: Iterable[Mapping[str, Any]]) -> list[StageRow]:
    """Add up rows of timings.jsonl to a table in the order of `STAGES`. The parts of a stage, which
    it includes, are below it, and then what ran in the background."""
    sums: dict[tuple[str, bool, str], _Sum] = defaultdict(_Sum)
    for timing in timings:
        stage, num_bytes = timing["stage"], timing.get("num_bytes", 0)
        sums[stage, False, ""].add(timing["busy_s"], timing["wait_s"], num_bytes)
        for kind in ("functions", "background"):
            for name, seconds in timing.get(kind, {}).items():
                sums[stage, kind == "background", name].add(seconds)
    total_s = sum(found.busy_s for (_, _, part), found in sums.items() if not part) or 1.0
    keys = [key for stage in STAGES for key in sums if key[0] == stage]
    return [
        StageRow(
            stage=part_of(stage, part) if part else stage,
            calls=found.calls,
            total_s=found.busy_s,
            mean_s=found.busy_s / found.calls,
            share=0.0 if in_background else found.busy_s / total_s,
            wait_s=found.wait_s,
            mean_bytes=found.num_bytes / found.calls,
            in_background=in_background,
        )
        for stage, in_background, part in sorted(keys, key=lambda key: STAGES.index(key[0]))
        for found in [sums[stage, in_background, part]]
    ]


def own_timings(
    timings: Iterable[Mapping[str, Any]], first_step: int
) -> Iterator[Mapping[str, Any]]:
    """Yield the rows of a run that began at `first_step`, without those of a fork's parent."""
    for row in timings:
        begins_it = row["stage"] in (*STAGES_OF_A_STEP, *BEFORE_A_STEP)
        if not first_step or row["step"] > first_step or (begins_it and row["step"] == first_step):
            yield row


def part_of(stage: str, name: str) -> str:
    """Return the table's name for a part of a stage, such as a reward function."""
    return f"{stage}: {name}"


def timing_row(timing: StageTiming) -> dict[str, Any]:
    """Return a line of timings.jsonl, without rare fields that are empty."""
    rare = ("functions", "num_bytes", "sync_s", "background", "memory")
    return {k: v for k, v in asdict(timing).items() if v or k not in rare}


def generation_timings(generation: GenerationRef) -> Iterator[StageTiming]:
    """Yield a shard's timing, and that of the weight sync that it began with."""
    timing = generation.timing
    if timing.sync_s:
        yield replace(
            timing,
            stage="sync_weights",
            step=generation.policy_version,
            functions={},
            busy_s=timing.sync_s,
            wait_s=0.0,
            sync_s=0.0,
        )
        busy_s = max(0.0, timing.busy_s - timing.sync_s)
        timing = replace(timing, busy_s=busy_s, num_bytes=0, sync_s=0.0)
    yield timing


def table_cells(rows: Sequence[StageRow]) -> list[dict[str, str]]:
    """Return text cells under users' headings; sizes where any is known."""
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
        "share": "background" if row.in_background else f"{100 * row.share:.1f} %",
        "waiting": "" if row.in_background else f"{row.wait_s:.2f} s",
    }
