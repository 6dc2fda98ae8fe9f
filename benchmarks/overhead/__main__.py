"""Run the variants in turn against one Prefect server and print what orchestration costs.

    python -m benchmarks.overhead                          # 50 and 500 steps, half an hour
    python -m benchmarks.overhead --steps 30 --rounds 1    # a try: two minutes
    python -m benchmarks.overhead --before COMMIT          # the flow of that commit beside it

Every run has a process of its own. The variants of a round follow each other; the next run starts
when the server has written down the last one's history. The bare run comes first: it says how long
the empty task runs of the others are.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.earlier import code_of
from benchmarks.jobs import ROOT, in_turn, run_job
from benchmarks.output import add_output_option, write_results
from benchmarks.overhead.meter import Stamp
from benchmarks.overhead.report import print_report
from benchmarks.overhead.server_meter import largest_tables, server_stamp
from benchmarks.overhead.stats import RunStats, overhead, run_stats
from benchmarks.server import own_server
from mortal.server.files import Server
from mortal_steps.config import RunConfig
from mortal_steps.config.loader import load_config
from mortal_steps.schedule import shard_bounds

VARIANTS = ("flow", "floor", "persisted")
"""Beside the bare run."""
BEFORE = "before"
"""The flow of an earlier commit."""


def main() -> None:
    args = _parse()
    config_path = args.config.absolute()
    os.chdir(ROOT)  # the configuration names its data from here
    config = load_config(config_path, args.set)
    runs: list[RunStats] = []
    with contextlib.ExitStack() as held:
        name = held.enter_context(tempfile.TemporaryDirectory(prefix="overhead-"))
        server = held.enter_context(own_server(Path(name)))
        earlier: Path | None = None
        if args.before:
            earlier = held.enter_context(code_of(args.before, Path(name)))
        variants = (*VARIANTS, BEFORE) if earlier else VARIANTS
        for steps, rounds in zip(args.steps, args.rounds, strict=True):
            for number in range(rounds):
                lengths_s: dict[str, float] = {}
                for variant in ("bare", *in_turn(variants, number)):
                    job = _job(variant, config_path, args.set, steps, number, Path(name))
                    job["lengths_s"] = lengths_s
                    code = earlier if variant == BEFORE else None
                    stats, outcome = _measure(job, server, code)
                    lengths_s = outcome.get("lengths_s", lengths_s)
                    runs.append(stats)
                    print(_line(stats), flush=True)
        tables = largest_tables(8)
    _finish(args.output, config, runs, tables)


def _parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.overhead", description="What orchestration costs per step."
    )
    parser.add_argument("--steps", type=int, nargs="+", default=[50, 500], help="lengths of run")
    parser.add_argument(
        "--rounds", type=int, nargs="+", default=None, help="rounds per length (default: 5 and 2)"
    )
    parser.add_argument("--before", metavar="COMMIT", help="measure its flow, too")
    parser.add_argument("--config", type=Path, default=Path(__file__).with_name("tiny.toml"))
    parser.add_argument("--set", action="append", default=[], help="section.key=value; repeatable")
    add_output_option(parser, "overhead")
    args = parser.parse_args()
    if min(args.steps) < 20:
        parser.error("--steps must be at least 20: the first few are warm-up")
    args.rounds = args.rounds or [5 if steps < 200 else 2 for steps in args.steps]
    if len(args.rounds) == 1:
        args.rounds = args.rounds * len(args.steps)
    if len(args.rounds) != len(args.steps):
        parser.error("--rounds needs one number, or as many as --steps")
    return args


def _job(
    variant: str, config: Path, overrides: Sequence[str], steps: int, number: int, folder: Path
) -> dict[str, Any]:
    name = f"{variant}-{steps}-{number}"
    places = [f"run_id={name}", f"runs_dir={folder / 'runs'}"]
    return {
        "variant": "flow" if variant == BEFORE else variant,
        "steps": steps,
        "round": number,
        "config": str(config),
        "overrides": [*overrides, f"training.max_steps={steps}", *places],
        "output": str(folder / f"{name}.json"),
    }


def _measure(
    job: dict[str, Any], server: Server, code: Path | None
) -> tuple[RunStats, dict[str, Any]]:
    before = server_stamp()
    outcome = run_job("benchmarks.overhead.variants", job, server, code=code)
    after = server_stamp()
    stamps = [Stamp(*stamp) for stamp in outcome["stamps"]]
    variant = BEFORE if code else job["variant"]
    return run_stats(variant, job["steps"], job["round"], stamps, before, after), outcome


def _line(run: RunStats) -> str:
    return (
        f"{run.steps:4} steps  round {run.round}  {run.variant:9}  "
        f"{run.step_ms:6.1f} ms  CPU {run.cpu_ms:6.1f} ms, server's {run.server_cpu_ms:6.1f} ms  "
        f"{run.rss_last_mb:4.0f} MB  database {run.database_mb_per_1000_steps:5.1f} MB per 1,000"
    )


def _finish(
    output: Path, config: RunConfig, runs: Sequence[RunStats], tables: dict[str, int]
) -> None:
    shards = len(shard_bounds(config.training.batch_size, config.num_shards))
    per_step = 2 + 2 * shards + config.num_rollout_workers
    summaries = [
        overhead(
            [run for run in runs if run.steps == steps],
            task_runs_per_step=per_step,
            kept_per_step=1 + 2 * shards,
        )
        for steps in dict.fromkeys(run.steps for run in runs)
    ]
    print_report(runs, summaries)
    write_results(output, {"overhead": summaries, "tables_bytes": tables, "runs": runs})


if __name__ == "__main__":
    main()
