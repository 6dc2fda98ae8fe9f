"""What a training took, and the table that compares them."""

from __future__ import annotations

import itertools
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rich.table import Table

from benchmarks.output import console
from benchmarks.overhead.meter import Stamp

WARM_UP = 3
"""First steps of a run, left out of the step time."""
LAST = 10
"""Steps whose mean reward is what was reached."""


@dataclass(frozen=True, kw_only=True, slots=True)
class TrainingStats:
    """One training."""

    model: str
    variant: str
    round: int
    steps: int
    step_ms: float
    """Mean wall time of a step, the first few left out."""
    median_ms: float
    cpu_ms: float
    """CPU time of a step in every process but the Prefect server."""
    samples_per_s: float
    """Completions sampled and trained on per second."""
    whole_s: float
    """From the start of the process to its end; MORTAL's server is already running."""
    first_reward: float
    last_reward: float
    """Mean reward of the first and the last ten steps."""
    stages_ms: Mapping[str, float]
    """MORTAL: mean time of one call of each stage inside its worker."""

    def line(self) -> str:
        """Progress while the benchmark runs."""
        return (
            f"{self.model:6} round {self.round} {self.variant:16} {self.step_ms:7.1f} ms a step, "
            f"{self.cpu_ms:.0f} ms CPU, "
            f"{self.whole_s:5.1f} s in all, reward {self.first_reward:.3f} to "
            f"{self.last_reward:.3f}"
        )


def training_stats(
    job: Mapping[str, Any], outcome: Mapping[str, Any], *, rows: int, whole_s: float
) -> TrainingStats:
    """From the stamps at the start of each step."""
    stamps = [Stamp(*stamp) for stamp in outcome["stamps"]][WARM_UP:]
    steps = list(itertools.pairwise(stamps))
    walls = [1e3 * (end.wall_s - begin.wall_s) for begin, end in steps]
    cpu_s = [
        end.cpu_s - begin.cpu_s + end.workers_cpu_s - begin.workers_cpu_s for begin, end in steps
    ]
    step_ms = statistics.fmean(walls)
    return TrainingStats(
        model=job["model"],
        variant=job["variant"],
        round=job["round"],
        steps=job["steps"],
        step_ms=step_ms,
        median_ms=statistics.median(walls),
        cpu_ms=1e3 * statistics.fmean(cpu_s),
        samples_per_s=1e3 * rows / step_ms,
        whole_s=whole_s,
        first_reward=statistics.fmean(outcome["rewards"][:LAST]),
        last_reward=statistics.fmean(outcome["rewards"][-LAST:]),
        stages_ms={name: 1e3 * of["mean_s"] for name, of in outcome.get("stages", {}).items()},
    )


def print_report(stats: Sequence[TrainingStats], server_s: float) -> None:
    """Medians over the rounds; the ratio is to the better of TRL's runs in the same round."""
    table = Table(title="median of the rounds", title_justify="left")
    for heading in (
        "model",
        "variant",
        "step, mean",
        "step, median",
        "CPU",
        "samples/s",
        "time / best TRL",
        "with start-up",
        f"reward, first {LAST}",
        f"last {LAST}",
    ):
        left = heading in ("model", "variant")
        table.add_column(heading, justify="left" if left else "right", overflow="fold")
    for (model, variant), group in _grouped(stats).items():
        middle = {
            name: statistics.median(getattr(run, name) for run in group)
            for name in TrainingStats.__slots__
            if name not in ("model", "variant", "stages_ms")
        }
        ratio = statistics.median(run.step_ms / _best_stock(stats, run) for run in group)
        table.add_row(
            model,
            variant,
            f"{middle['step_ms']:.1f} ms",
            f"{middle['median_ms']:.1f} ms",
            f"{middle['cpu_ms']:.0f} ms",
            f"{middle['samples_per_s']:,.0f}",
            f"{ratio:.2f}",
            f"{middle['whole_s']:.1f} s",
            f"{middle['first_reward']:.3f}",
            f"{middle['last_reward']:.3f}",
        )
    console.print()
    console.print(table)
    _print_stages(stats)
    console.print(f"The Prefect server took {server_s:.1f} s to start, once, on top of MORTAL's.")


def _print_stages(stats: Sequence[TrainingStats]) -> None:
    """What a call of each stage takes inside its worker; the rest of a step is on the way there."""
    ours = {key: runs for key, runs in _grouped(stats).items() if runs[0].stages_ms}
    table = Table(title="MORTAL: one call of a stage, inside its worker", title_justify="left")
    stages = ("get_batch", "generate", "reward", "train_step", "sync_weights")
    for heading in ("model", "variant", *stages):
        table.add_column(heading, justify="left" if heading in ("model", "variant") else "right")
    for (model, variant), runs in ours.items():
        means = (statistics.median(run.stages_ms[stage] for run in runs) for stage in stages)
        table.add_row(model, variant, *(f"{mean:.1f} ms" for mean in means))
    console.print(table)


def _grouped(stats: Sequence[TrainingStats]) -> dict[tuple[str, str], list[TrainingStats]]:
    groups: dict[tuple[str, str], list[TrainingStats]] = {}
    for run in sorted(stats, key=lambda run: run.round):
        groups.setdefault((run.model, run.variant), []).append(run)
    return groups


def _best_stock(stats: Sequence[TrainingStats], run: TrainingStats) -> float:
    return min(
        other.step_ms
        for other in stats
        if other.variant.startswith("TRL") and (other.model, other.round) == (run.model, run.round)
    )
