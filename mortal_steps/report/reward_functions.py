"""Statistics of each reward function: its scores, its failures, its duration."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from mortal_steps.report.timings import StageRow, part_of
from mortal_steps.report.units import number

WINDOW = 20
"""Steps at the end of a run over which scores are averaged."""
KEY = "rewards/"


@dataclass(frozen=True, kw_only=True, slots=True)
class FunctionRow:
    """A reward function in training."""

    name: str
    mean: float | None
    """Of its scores over the last 20 steps; None where it gave none."""
    std: float | None
    """Standard deviation over a batch, as TRL has it: its mean over the last 20 steps."""
    failed_calls: int
    """Calls that failed in all steps, including those that succeeded when they were repeated."""
    masked: int
    """Completions left out because it failed on them, over all steps."""
    latency_s: float | None
    """Mean seconds that it takes for a shard, further calls after a failure included, wherever it
    is computed; None where no time was noted."""


def function_rows(
    metrics: Sequence[Mapping[str, Any]], stages: Iterable[StageRow]
) -> list[FunctionRow]:
    """Return a row for each function that metrics.jsonl knows of; `stages`: the timing table."""
    took = {row.stage: row.mean_s for row in stages}
    named = dict.fromkeys(
        key.removeprefix(KEY).rpartition("/")[0]
        for row in metrics
        for key in row
        if key.startswith(KEY) and key.endswith(("/mean", "/failed_calls", "/masked"))
    )
    return [
        FunctionRow(
            name=name,
            mean=_mean(metrics[-WINDOW:], f"{KEY}{name}/mean"),
            std=_mean(metrics[-WINDOW:], f"{KEY}{name}/std"),
            failed_calls=sum(row.get(f"{KEY}{name}/failed_calls", 0) for row in metrics),
            masked=sum(row.get(f"{KEY}{name}/masked", 0) for row in metrics),
            latency_s=took.get(part_of("reward", name), took.get(part_of("generate", name))),
        )
        for name in named
    ]


def function_cells(rows: Iterable[FunctionRow]) -> list[dict[str, str]]:
    """Return the table as text cells under the headings that users see."""
    return [
        {
            "reward function": row.name,
            "mean": number(row.mean),
            "std": number(row.std),
            "failed calls": f"{row.failed_calls:,}",
            "masked": f"{row.masked:,}",
            "latency": "-" if row.latency_s is None else f"{1000 * row.latency_s:.1f} ms",
        }
        for row in rows
    ]


def _mean(rows: Iterable[Mapping[str, Any]], key: str) -> float | None:
    """Return the mean of what is there; TRL writes NaN where nothing was scored."""
    values = [row[key] for row in rows if row.get(key) is not None]
    known = [value for value in values if value == value]
    return sum(known) / len(known) if known else None
