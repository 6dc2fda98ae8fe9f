"""What time and memory a run on Atropos' batches took, as their example trainer sums it up."""

import time
from collections.abc import Iterator, Sequence

from mortal_steps.runs.logs import TIMINGS
from mortal_steps.runs.run import Run

WIDTH = 70
STAGES = {"step": "train_step", "sync": "sync_weights", "data fetch": "get_batch"}
"""What a part is called -> the stage that it is."""
MEMORY = {"gpu": "GPU memory", "gpu_reserved": "GPU reserved", "resident": "resident set"}


def stage_times(run: Run) -> dict[str, list[float]]:
    """Return the seconds of each part: of all optimizer steps, of all new weights that the endpoint
    was given, and of all waits for a batch."""
    found: dict[str, list[float]] = {part: [] for part in STAGES}
    parts = {stage: part for part, stage in STAGES.items()}
    for row in run.logs.read(TIMINGS):
        if (part := parts.get(row["stage"])) is not None:
            found[part].append(row["busy_s"] + row["wait_s"])
    return found


def memory(run: Run) -> dict[str, list[float]]:
    """Return what the actor's process has had of each memory, in GB, step by step."""
    found: dict[str, list[float]] = {}
    for row in run.logs.read(TIMINGS):
        for kind, num_bytes in row.get("memory", {}).items():
            found.setdefault(kind, []).append(num_bytes / 1e9)
    return found


def summary(run: Run, mode: str, began: float) -> Iterator[str]:
    """Yield the lines of the summary; `began` is when, by the monotonic clock."""
    total, times = time.monotonic() - began, stage_times(run)
    yield "=" * WIDTH
    yield f"BENCHMARK SUMMARY ({mode})"
    yield "=" * WIDTH
    yield f"  Total training time:     {total:.2f}s ({total / 60:.2f} min)"
    yield f"  Total steps:             {len(times['step'])}"
    yield "  TIMING BREAKDOWN:"
    for part, seconds in times.items():
        count = f" (x{len(seconds)} syncs)" if part == "sync" else ""
        yield f"    {f'Avg {part} time:':<23}{_mean(seconds):.2f}s{count}"
        yield f"    {f'Total {part} time:':<23}{sum(seconds):.2f}s"
    yield "  MEMORY:"
    for kind, held in memory(run).items():
        yield f"    {f'Peak {MEMORY[kind]}:':<23}{max(held):.2f} GB"
        yield f"    {f'Avg {MEMORY[kind]}:':<23}{_mean(held):.2f} GB"
    yield "=" * WIDTH


def _mean(seconds: Sequence[float]) -> float:
    return sum(seconds) / max(len(seconds), 1)
