"""The tables at the end of the overhead benchmark."""

from __future__ import annotations

from collections.abc import Sequence

from rich.table import Table

from benchmarks.output import console, results_table
from benchmarks.overhead.stats import EARLY, Overhead, RunStats, averages


def print_report(runs: Sequence[RunStats], summaries: Sequence[Overhead]) -> None:
    """What each variant took, then what orchestration costs beside the floor."""
    console.print()
    console.print(_variants(runs))
    console.print(_overheads(summaries))
    for each in summaries:
        console.print(
            f"{each.steps} steps: keeping a result adds {each.persisted_ms_per_task_run:.2f} ms "
            f"({each.persisted_cpu_ms_per_task_run:.2f} ms CPU) to a task run"
        )


def _variants(runs: Sequence[RunStats]) -> Table:
    table = results_table(
        "per step; median of the rounds",
        "steps",
        "variant",
        "median",
        "mean",
        "CPU",
        "workers",
        "server",
        "database per 1,000",
        "last/first fifth",
        "the same, CPU",
        f"RSS at {EARLY}",
        "RSS at end",
        "per 100 steps",
        left=("variant",),
    )
    for (steps, variant), of in averages(runs).items():
        table.add_row(
            str(steps),
            variant,
            f"{of['step_ms']:.1f} ms",
            f"{of['mean_ms']:.1f} ms",
            f"{of['cpu_ms']:.1f} ms",
            f"{of['workers_cpu_ms']:.0f} ms" if variant in ("flow", "bare", "before") else "-",
            "-" if variant == "bare" else f"{of['server_cpu_ms']:.0f} ms",
            "-" if variant == "bare" else f"{of['database_mb_per_1000_steps']:.1f} MB",
            f"{of['growth']:.2f}",
            f"{of['cpu_growth']:.2f}",
            f"{of['rss_early_mb']:.0f} MB",
            f"{of['rss_last_mb']:.0f} MB",
            f"{of['rss_mb_per_100_steps']:+.1f} MB",
        )
    return table


def _overheads(summaries: Sequence[Overhead]) -> Table:
    headings = ("steps", "task runs", "", "flow", "floor", "ratio", "before", "ratio before")
    table = results_table("the flow beside the floor, in one round", *headings, left=("",))
    for each in summaries:
        for of in each.figures:
            table.add_row(
                str(each.steps),
                f"{each.task_runs_per_step} a step",
                of.what,
                f"{of.flow:.1f}",
                f"{of.floor:.1f}",
                f"{of.ratio:.2f}",
                "-" if of.before is None else f"{of.before:.1f}",
                "-" if of.before_ratio is None else f"{of.before_ratio:.2f}",
            )
    return table
