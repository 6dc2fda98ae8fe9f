"""What orchestration costs a step of 0.2, 5 and 30 s, and how fast the server's database grows.

    python -m benchmarks.overhead                     # four minutes
    python -m benchmarks.overhead --seconds 0 --steps 10000   # what grows with the steps?

The workers wait instead of working: half of a step in `generate`, half in `train_step`. Every stage
is a task run all the same, and every step is committed. What a step takes longer than that, and all
CPU time, is orchestration.
"""

from __future__ import annotations

import argparse
import os
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.jobs import ROOT, run_job
from benchmarks.meter import Stamp
from benchmarks.output import add_output_option, console, results_table, write_results
from benchmarks.overhead.stats import RunStats, run_stats, server_stamp
from benchmarks.server import own_server
from mortal.server.files import Server

CONFIG = Path(__file__).with_name("tiny.toml")
GOAL_PERCENT = 2.0
"""Of a step of 5 s: what it takes longer, and the CPU time of the flow."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Cost:
    """Orchestration of one length of step."""

    step_s: float
    """What its workers take."""
    stats: RunStats

    @property
    def more_ms(self) -> float:
        """What a step takes longer than its workers."""
        return self.stats.step_ms - 1e3 * self.step_s

    def percent(self, ms: float) -> str:
        """Milliseconds, and how many percent they are of a step that takes any time."""
        share = f", {ms / (10 * self.step_s):.1f} %" if self.step_s else ""
        return f"{ms:.0f} ms{share}"


def main() -> None:
    """Measure, print, write down."""
    args = _parse()
    os.chdir(ROOT)  # the configuration names its data from here
    costs: list[Cost] = []
    with (
        tempfile.TemporaryDirectory(prefix="overhead-") as name,
        own_server(Path(name)) as server,
    ):
        for step_s, steps in zip(args.seconds, args.steps, strict=True):
            stats = _measured(step_s, steps, server, Path(name) / f"steps-of-{step_s:g}")
            costs.append(Cost(step_s=step_s, stats=stats))
            console.print(f"{step_s:g} s, {steps} steps: done")
    _print(costs)
    write_results(args.output, {"overhead": costs})


def _parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.overhead", description=__doc__)
    parser.add_argument("--seconds", type=float, nargs="+", default=[0.2, 5.0, 30.0])
    parser.add_argument("--steps", type=int, nargs="+", help="for each of them")
    add_output_option(parser, "overhead")
    args = parser.parse_args()
    args.steps = args.steps or [{0.2: 100, 5.0: 20, 30.0: 7}.get(each, 20) for each in args.seconds]
    if len(args.steps) != len(args.seconds) or min(args.steps) < 5:
        parser.error("--steps needs a number for each of --seconds, 5 or more")
    return args


def _measured(step_s: float, steps: int, server: Server, folder: Path) -> RunStats:
    folder.mkdir()
    job: dict[str, Any] = {
        "config": str(CONFIG),
        "prefect": True,
        "step_s": step_s,
        "overrides": [
            f"training.max_steps={steps}",
            "evaluation.eval_steps=0",
            f"run_id={folder.name.replace('.', '-')}",
            f"runs_dir={folder}/runs",
        ],
        "output": str(folder / "outcome.json"),
    }
    before = server_stamp()
    outcome = run_job("benchmarks.measured_run", job, server)
    after = server_stamp()
    stamps = [Stamp(*stamp) for stamp in outcome["stamps"]]
    return run_stats(steps, stamps, before, after, warm_up=min(5, steps // 3))


def _print(costs: Sequence[Cost]) -> None:
    costs_of = ("takes longer", "CPU of the flow", "CPU of the server", "database")
    growth = ("last fifth beside the first", "memory at step 50, at the end")
    table = results_table("orchestration of a step", "step", *costs_of, *growth)
    for each in costs:
        table.add_row(
            f"{each.step_s:g} s",
            each.percent(each.more_ms),
            each.percent(each.stats.cpu_ms),
            each.percent(each.stats.server_cpu_ms),
            f"{each.stats.database_mb_per_1000_steps:.0f} MB per 1,000 steps",
            f"{each.stats.growth:.2f} of the time, {each.stats.cpu_growth:.2f} of the flow's CPU",
            f"{each.stats.rss_early_mb:.0f}, {each.stats.rss_last_mb:.0f} MB",
        )
    console.print(table)
    console.print(f"goal at 5 s: {GOAL_PERCENT:g} % of the step, of time and of the flow's CPU")


if __name__ == "__main__":
    main()
