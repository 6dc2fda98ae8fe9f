"""What a training took, and the table that compares them."""

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from benchmarks.meter import Stamp, steps_between
from benchmarks.output import console, results_table

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
    slowest_ms: float
    cpu_ms: float
    """CPU time of a step in every process but the Prefect server."""
    samples_per_s: float
    """Completions sampled and trained on per second."""
    whole_s: float
    """From the start of the process to its end; MORTAL's server is already running."""
    first_reward: float
    last_reward: float
    """Mean reward of the first and the last ten steps; the loss where rows are learned from."""
    stages_ms: Mapping[str, float]
    """MORTAL: mean time of one call of each stage inside its worker."""

    def line(self) -> str:
        """Progress while the benchmark runs."""
        return (
            f"{self.model:6} round {self.round} {self.variant:16} {self.step_ms:7.1f} ms a step "
            f"(median {self.median_ms:.1f}, slowest {self.slowest_ms:.0f}), "
            f"{self.cpu_ms:.0f} ms CPU, "
            f"{self.whole_s:5.1f} s in all, reward or loss {self.first_reward:.3f} to "
            f"{self.last_reward:.3f}"
        )


def training_stats(
    job: Mapping[str, Any], outcome: Mapping[str, Any], *, rows: int
) -> TrainingStats:
    """From the stamps at the start of each step."""
    measured = steps_between([Stamp(*stamp) for stamp in outcome["stamps"]], warm_up=WARM_UP)
    walls = [step.wall_ms for step in measured]
    step_ms = statistics.fmean(walls)
    return TrainingStats(
        model=job["model"],
        variant=job["variant"],
        round=job["round"],
        steps=job["steps"],
        step_ms=step_ms,
        median_ms=statistics.median(walls),
        slowest_ms=max(walls),
        cpu_ms=statistics.fmean(step.cpu_ms + step.workers_cpu_ms for step in measured),
        samples_per_s=1e3 * rows / step_ms,
        whole_s=outcome["whole_s"],
        first_reward=statistics.fmean(outcome["rewards"][:LAST]),
        last_reward=statistics.fmean(outcome["rewards"][-LAST:]),
        stages_ms={name: 1e3 * of["mean_s"] for name, of in outcome.get("stages", {}).items()},
    )


def print_report(stats: Sequence[TrainingStats], server_s: float) -> None:
    """Medians over the rounds; the ratios are to the better of TRL's runs in the same round."""
    rows = [_row(stats, *key, group) for key, group in _grouped(stats).items()]
    console.print()
    console.print(results_table("median of the rounds", rows, left=("model", "variant")))
    _print_stages(stats)
    console.print(f"The Prefect server took {server_s:.1f} s to start, once, on top of MORTAL's.")


def _row(
    stats: Sequence[TrainingStats], model: str, variant: str, group: Sequence[TrainingStats]
) -> dict[str, str]:
    def middle(name: str) -> float:
        return statistics.median(getattr(run, name) for run in group)

    def ratio(of: str) -> float:
        return statistics.median(getattr(run, of) / _best_stock(stats, run, of) for run in group)

    return {
        "model": model,
        "variant": variant,
        "step, mean": f"{middle('step_ms'):.1f} ms",
        "step, median": f"{middle('median_ms'):.1f} ms",
        "slowest": f"{middle('slowest_ms'):.0f} ms",
        "CPU": f"{middle('cpu_ms'):.0f} ms",
        "samples/s": f"{middle('samples_per_s'):,.0f}",
        "time / best TRL": f"{ratio('step_ms'):.2f}",
        "CPU / best TRL": f"{ratio('cpu_ms'):.2f}",
        "with start-up": f"{middle('whole_s'):.1f} s",
        f"reward or loss, first {LAST}": f"{middle('first_reward'):.3f}",
        f"last {LAST}": f"{middle('last_reward'):.3f}",
    }


def _print_stages(stats: Sequence[TrainingStats]) -> None:
    """Print what each stage takes inside its worker; the rest of a step is on the way there."""
    ours = {key: runs for key, runs in _grouped(stats).items() if runs[0].stages_ms}
    known = ("get_batch", "generate", "reward", "train_step", "sync_weights")
    stages = [stage for stage in known if any(stage in of[0].stages_ms for of in ours.values())]
    rows = []
    for (model, variant), runs in ours.items():
        means = {
            stage: f"{statistics.median(run.stages_ms[stage] for run in runs):.1f} ms"
            if stage in runs[0].stages_ms
            else "-"
            for stage in stages
        }
        rows.append({"model": model, "variant": variant, **means})
    title = "MORTAL: one call of a stage, inside its worker"
    console.print(results_table(title, rows, left=("model", "variant")))


def _grouped(stats: Sequence[TrainingStats]) -> dict[tuple[str, str], list[TrainingStats]]:
    groups: dict[tuple[str, str], list[TrainingStats]] = {}
    for run in sorted(stats, key=lambda run: run.round):
        groups.setdefault((run.model, run.variant), []).append(run)
    return groups


def _best_stock(stats: Sequence[TrainingStats], run: TrainingStats, of: str) -> float:
    return min(
        getattr(other, of)
        for other in stats
        if other.variant.startswith("TRL") and (other.model, other.round) == (run.model, run.round)
    )
