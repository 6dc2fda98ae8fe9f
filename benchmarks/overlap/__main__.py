"""Train alternately with staleness 0 and 1 and print steps per second and the reward reached.

python -m benchmarks.overlap                        # three seeds
python -m benchmarks.overlap --seeds 0 --steps 30
"""

from __future__ import annotations

import argparse
import os
import statistics
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.jobs import ROOT, in_turn, run_job
from benchmarks.output import add_output_option, console, results_table, write_results
from benchmarks.overhead.meter import Stamp, steps_between
from benchmarks.server import own_server
from mortal.server.files import Server
from mortal_steps.report.summary import summarize
from mortal_steps.runs.run import find_run

CONFIG = Path(__file__).with_name("digits.toml")
WARM_UP = 3
"""First steps of a run, left out: the overlap begins in them."""
WINDOW = 10
"""Steps whose mean reward is what was reached."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Run:
    """One training."""

    staleness: int
    seed: int
    steps_per_s: float
    generate_ms: float
    """Mean time of one shard inside the rollout worker."""
    train_ms: float
    """Mean time of a train step inside the actor."""
    reward_halfway: float
    reward_end: float
    """Mean reward of the 10 steps before the middle and before the end of the run."""


def main() -> None:
    args = _parse()
    os.chdir(ROOT)  # the configuration names its data from here
    runs: list[Run] = []
    with tempfile.TemporaryDirectory(prefix="overlap-") as name, own_server(Path(name)) as server:
        for position, seed in enumerate(args.seeds):
            for staleness in in_turn(args.staleness, position):
                runs.append(_train(staleness, seed, args, Path(name), server))
                console.print(_line(runs[-1]))
    _print_report(runs)
    write_results(args.output, {"runs": runs})


def _parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.overlap", description="What generating beside training gains."
    )
    parser.add_argument("--staleness", type=int, nargs="+", default=[0, 1])
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--steps", type=int, default=120, help="train steps of a run")
    parser.add_argument("--set", action="append", default=[], help="section.key=value; repeatable")
    add_output_option(parser, "overlap")
    args = parser.parse_args()
    if 0 not in args.staleness:
        parser.error("--staleness needs a 0: the others are compared with it")
    if args.steps < 10:
        parser.error("--steps must be at least 10: the first few are warm-up")
    return args


def _train(
    staleness: int, seed: int, args: argparse.Namespace, folder: Path, server: Server
) -> Run:
    run_id = f"overlap-{staleness}-{seed}"
    runs_dir = folder / "runs"
    overrides = {
        "seed": seed,
        "training.max_steps": args.steps,
        "run_id": run_id,
        "runs_dir": runs_dir,
        "rollout.staleness": staleness,
    }
    job = {
        "variant": "flow",
        "config": str(CONFIG),
        "overrides": [*args.set, *(f"{key}={value}" for key, value in overrides.items())],
        "output": str(folder / f"{run_id}.json"),
    }
    outcome = run_job("benchmarks.overhead.variants", job, server)
    run = find_run(runs_dir, run_id)
    stages = summarize(run).timings
    rewards = [row["reward"] for row in run.metrics()]
    measured = steps_between([Stamp(*stamp) for stamp in outcome["stamps"]], warm_up=WARM_UP)
    return Run(
        staleness=staleness,
        seed=seed,
        steps_per_s=1e3 / statistics.fmean(step.wall_ms for step in measured),
        generate_ms=1e3 * stages["generate"].mean_s,
        train_ms=1e3 * stages["train_step"].mean_s,
        reward_halfway=_reward(rewards[: len(rewards) // 2]),
        reward_end=_reward(rewards),
    )


def _reward(rewards: Sequence[float]) -> float:
    return statistics.fmean(rewards[-WINDOW:])


def _line(run: Run) -> str:
    return (
        f"seed {run.seed}  staleness {run.staleness}  {run.steps_per_s:5.2f} steps/s  "
        f"generate {run.generate_ms:.0f} ms  train {run.train_ms:.0f} ms  "
        f"reward {run.reward_end:.3f}"
    )


def _print_report(runs: Sequence[Run]) -> None:
    table = results_table(
        "mean of the seeds (lowest to highest)",
        *("staleness", "steps/s", "times staleness 0", "generate", "train"),
        *("reward halfway", "reward at the end"),
    )
    base = {run.seed: run.steps_per_s for run in runs if run.staleness == 0}
    for staleness in sorted({run.staleness for run in runs}):
        of = [run for run in runs if run.staleness == staleness]
        table.add_row(
            str(staleness),
            _spread([run.steps_per_s for run in of], ".2f"),
            _spread([run.steps_per_s / base[run.seed] for run in of], ".2f"),
            f"{statistics.fmean(run.generate_ms for run in of):.0f} ms",
            f"{statistics.fmean(run.train_ms for run in of):.0f} ms",
            _spread([run.reward_halfway for run in of], ".3f"),
            _spread([run.reward_end for run in of], ".3f"),
        )
    console.print()
    console.print(table)


def _spread(values: Sequence[float], form: str) -> str:
    return f"{statistics.fmean(values):{form}} ({min(values):{form}}-{max(values):{form}})"


if __name__ == "__main__":
    main()
