"""What orchestration costs a step of 0.2, 5 and 30 s, and how fast the server's database grows.

    python -m benchmarks.overhead                     # four minutes
    python -m benchmarks.overhead --seconds 0 --steps 10000   # what grows with the steps?

The workers wait instead of working: half of a step in `generate`, half in `train_step`. Every stage
is a task run all the same, and every step is committed. What a step takes longer than that, and all
CPU time, is orchestration.
"""

import argparse
import contextlib
import os
import sqlite3
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

from benchmarks.jobs import ROOT
from benchmarks.meter import Stamp, steps_between
from benchmarks.output import command_line, console, folder_for, results_table, write_results
from benchmarks.server import measured_run, own_server
from mortal.server.files import DATABASE, Server, server_home

CONFIG = Path(__file__).with_name("tiny.toml")
GOAL_PERCENT = 2.0
"""Of a step of 5 s: what it takes longer, and the CPU time of the flow."""
EARLY = 50
"""Step whose memory is compared with the last one's."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Cost:
    """What orchestration costs in one run."""

    step_s: float
    """What the workers take for a step."""
    step_ms: float
    """Median wall time of a step."""
    cpu_ms: float
    """Mean CPU time of the flow's process per step."""
    growth: float
    """Median step of the last fifth over that of the first fifth."""
    cpu_growth: float
    """Mean CPU time per step in the last fifth over that in the first fifth."""
    rss_early_mb: float
    """Resident memory at step 50 (or the last)."""
    rss_last_mb: float
    server_cpu_ms: float
    """CPU time of the Prefect server per step, its writing afterwards included."""
    database_mb_per_1000_steps: float
    """What the server's database grew by."""

    @property
    def more_ms(self) -> float:
        """What a step takes longer than its workers."""
        return self.step_ms - 1e3 * self.step_s

    def percent(self, ms: float) -> str:
        """Milliseconds, and how many percent they are of a step that takes any time."""
        share = f", {ms / (10 * self.step_s):.1f} %" if self.step_s else ""
        return f"{ms:.0f} ms{share}"


def main() -> None:
    """Measure, print, write down."""
    args = _parse()
    os.chdir(ROOT)  # the configuration names its data from here
    costs: list[Cost] = []
    with folder_for("overhead") as folder, own_server(folder) as server:
        for step_s, steps in zip(args.seconds, args.steps, strict=True):
            costs.append(_measured(step_s, steps, server, folder / f"steps-of-{step_s:g}"))
            console.print(f"{step_s:g} s, {steps} steps: done")
    _print(costs)
    write_results(args.output, {"overhead": costs})


def _parse() -> argparse.Namespace:
    parser = command_line("overhead", __doc__)
    parser.add_argument("--seconds", type=float, nargs="+", default=[0.2, 5.0, 30.0])
    parser.add_argument("--steps", type=int, nargs="+", help="for each of them")
    args = parser.parse_args()
    args.steps = args.steps or [{0.2: 100, 5.0: 20, 30.0: 7}.get(each, 20) for each in args.seconds]
    if len(args.steps) != len(args.seconds) or min(args.steps) < 5:
        parser.error("--steps needs a number for each of --seconds, 5 or more")
    return args


def _measured(step_s: float, steps: int, server: Server, folder: Path) -> Cost:
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
    }
    cpu_s, num_bytes = _server_cpu_s(), _database_bytes()
    outcome = measured_run(server, job)
    cpu_s, num_bytes = _server_cpu_s() - cpu_s, _database_bytes() - num_bytes
    stamps = [Stamp(*stamp) for stamp in outcome["stamps"]]
    # The first few steps are left out.
    measured = steps_between(stamps, warm_up=min(5, steps // 3))
    walls = [step.wall_ms for step in measured]
    cpus = [step.cpu_ms for step in measured]
    fifth = max(1, len(walls) // 5)
    resident = [stamp.resident_mb for stamp in stamps]
    return Cost(
        step_s=step_s,
        step_ms=statistics.median(walls),
        cpu_ms=statistics.fmean(cpus),
        growth=statistics.median(walls[-fifth:]) / statistics.median(walls[:fifth]),
        cpu_growth=statistics.fmean(cpus[-fifth:]) / statistics.fmean(cpus[:fifth]),
        rss_early_mb=resident[min(EARLY, len(stamps)) - 1],
        rss_last_mb=resident[-1],
        server_cpu_ms=1e3 * cpu_s / steps,
        database_mb_per_1000_steps=num_bytes / steps / 1e3,
    )


def _print(costs: Sequence[Cost]) -> None:
    rows = [
        {
            "step": f"{each.step_s:g} s",
            "takes longer": each.percent(each.more_ms),
            "CPU of the flow": each.percent(each.cpu_ms),
            "CPU of the server": each.percent(each.server_cpu_ms),
            "database": f"{each.database_mb_per_1000_steps:.0f} MB per 1,000 steps",
            "last fifth beside the first": f"{each.growth:.2f} of the time, "
            f"{each.cpu_growth:.2f} of the flow's CPU",
            "memory at step 50, at the end": f"{each.rss_early_mb:.0f}, {each.rss_last_mb:.0f} MB",
        }
        for each in costs
    ]
    console.print(results_table("orchestration of a step", rows))
    console.print(f"goal at 5 s: {GOAL_PERCENT:g} % of the step, of time and of the flow's CPU")


def _server_cpu_s() -> float:
    """CPU time of this benchmark's server: between runs, its processes are our only children."""
    times = [process.cpu_times() for process in psutil.Process().children(recursive=True)]
    return float(sum(each.user + each.system for each in times))


def _database_bytes() -> int:
    """Pages of the server's database that are in use."""
    path = server_home() / DATABASE
    with contextlib.closing(sqlite3.connect(f"{path.as_uri()}?mode=ro", uri=True)) as database:
        pages, free, size = (
            int(database.execute(f"PRAGMA {name}").fetchone()[0])
            for name in ("page_count", "freelist_count", "page_size")
        )
    return (pages - free) * size


if __name__ == "__main__":
    main()
