"""Runs of 1,000 and of 10,000 steps with almost no work: what grows with the number of steps?

    python -m benchmarks.long_run [--steps 1000 10000]     # a quarter of an hour

Workers answer at once, so a step is its orchestration: every stage a task run, every step
committed. Each run has a server and a database of its own.
"""

from __future__ import annotations

import argparse
import os
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from uuid import UUID

import httpx

from benchmarks.jobs import ROOT, run_job
from benchmarks.output import add_output_option, console, results_table, write_results
from benchmarks.overhead.meter import Stamp
from benchmarks.overhead.server_meter import largest_tables, server_stamp
from benchmarks.overhead.stats import RunStats, run_stats
from benchmarks.server import own_server
from mortal.server.files import Server

CONFIG = Path(__file__).parents[1] / "overhead" / "tiny.toml"
ASKED = 5
"""Times that a page is asked for; the median counts."""


def main() -> None:
    """Measure, print, write down."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.long_run", description=__doc__)
    parser.add_argument("--steps", type=int, nargs="+", default=[1_000, 10_000])
    add_output_option(parser, "long_run")
    args = parser.parse_args()
    os.chdir(ROOT)  # the configuration names its data from here
    runs = [_measured(steps) for steps in args.steps]
    _print([run["stats"] for run in runs], [run["pages_ms"] for run in runs])
    for run in runs:
        if run["unfinished"]:
            console.print(f"of {run['unfinished']} task runs the server has not written the end")
    write_results(args.output, {"runs": runs})


def _measured(steps: int) -> dict[str, Any]:
    """`stats`, `pages_ms`: how long the server takes for what its pages ask, `tables_bytes`."""
    with (
        tempfile.TemporaryDirectory(prefix="long-run-") as name,
        own_server(Path(name)) as server,
    ):
        job = {
            "config": str(CONFIG),
            "prefect": True,
            "step_s": 0.0,
            "overrides": [
                f"training.max_steps={steps}",
                "evaluation.eval_steps=0",
                "run_id=long",
                f"runs_dir={name}/runs",
            ],
            "output": f"{name}/outcome.json",
        }
        before = server_stamp()
        outcome = run_job("benchmarks.measured_run", job, server)
        after = server_stamp()
        stamps = [Stamp(*stamp) for stamp in outcome["stamps"]]
        return {
            "stats": run_stats(steps, stamps, before, after),
            "database_mb": after.database_bytes / 1e6,
            "server_rss_mb": after.resident_mb,
            "pages_ms": _pages(server, UUID(outcome["flow_run_id"])),
            "tables_bytes": largest_tables(8),
            "unfinished": outcome["unfinished"],
        }


def _pages(server: Server, run: UUID) -> dict[str, float]:
    """Milliseconds for the answers that the pages of a run and of its last segment are drawn of."""
    own = {"flow_runs": {"parent_flow_run_id": {"any_": [str(run)]}}}
    with httpx.Client(base_url=server.api_url, timeout=60) as client:
        segments = client.post("/flow_runs/filter", json={**own, "sort": "START_TIME_DESC"})
        last = segments.raise_for_status().json()[0]["id"]
        of_segment = {"flow_runs": {"id": {"any_": [last]}}, "limit": 50}
        return {
            "graph of the run": _median_ms(client, "GET", f"/flow_runs/{run}/graph-v2"),
            "graph of a segment": _median_ms(client, "GET", f"/flow_runs/{last}/graph-v2"),
            "list of flow runs": _median_ms(client, "POST", "/flow_runs/filter", {"limit": 50}),
            "task runs of a segment": _median_ms(client, "POST", "/task_runs/filter", of_segment),
        }


def _median_ms(client: httpx.Client, method: str, path: str, body: Any = None) -> float:
    took = []
    for _ in range(ASKED):
        began = time.perf_counter()
        client.request(method, path, json=body).raise_for_status()
        took.append(1e3 * (time.perf_counter() - began))
    return sorted(took)[ASKED // 2]


def _print(runs: Sequence[RunStats], pages_ms: Sequence[dict[str, float]]) -> None:
    headings = ("per step", *(f"{run.steps:,} steps" for run in runs))
    table = results_table("a run with almost no work", *headings, left=("per step",))
    rows = {
        "time": lambda run: f"{run.step_ms:.1f} ms",
        "CPU of the flow": lambda run: f"{run.cpu_ms:.1f} ms",
        "CPU of the server": lambda run: f"{run.server_cpu_ms:.1f} ms",
        "time, last fifth / first": lambda run: f"{run.growth:.2f}",
        "CPU of the flow, last fifth / first": lambda run: f"{run.cpu_growth:.2f}",
        "the flow's memory at step 50": lambda run: f"{run.rss_early_mb:.0f} MB",
        "the flow's memory at the end": lambda run: f"{run.rss_last_mb:.0f} MB",
        "database per 1,000 steps": lambda run: f"{run.database_mb_per_1000_steps:.1f} MB",
    }
    for name, show in rows.items():
        table.add_row(name, *(show(run) for run in runs))
    for page in pages_ms[0]:
        table.add_row(page, *(f"{pages[page]:.0f} ms" for pages in pages_ms))
    console.print(table)


if __name__ == "__main__":
    main()
