"""Seconds a step while checkpoints are written beside training, and while training waits for them.

    python -m benchmarks.saving
    python -m benchmarks.saving --staleness 1 --save-steps 1 2 --rounds 3

The loop and the workers are those of `mortal train`, without Prefect. `none` saves at the end
alone; `waits` is `checkpoints.background = false`.
"""

import argparse
import itertools
import os
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.jobs import ROOT, ask, in_turn
from benchmarks.meter import Stamp, steps_between
from benchmarks.output import command_line, console, folder_for, results_table, write_results
from mortal_steps.report.summary import summarize
from mortal_steps.runs.run import find_run

CONFIG = Path(__file__).with_name("digits.toml")
WARM_UP = 2
"""First steps of a run, left out: nothing was saved before them."""
NEVER = 1_000_000
VARIANTS = ("none", "waits", "beside")


@dataclass(frozen=True, kw_only=True, slots=True)
class Run:
    """One training."""

    variant: str
    staleness: int
    save_steps: int
    steps_s: tuple[float, ...]
    """Seconds of each step."""
    checkpoint_s: float
    """Mean seconds of a checkpoint that training may wait for."""
    write_s: float
    """Mean seconds of writing one beside training."""
    num_bytes: float
    weights_sha256: str


def main() -> None:
    args = _parse()
    os.chdir(ROOT)  # the configuration names its data from here
    runs: list[Run] = []
    with folder_for("saving", within=args.dir) as place:
        for drawn in itertools.product(range(args.rounds), args.staleness, args.save_steps):
            number, staleness, save_steps = drawn
            for variant in in_turn(args.variants, number):
                folder = place / f"{number}-{staleness}-{save_steps}-{variant}"
                runs.append(_train(variant, staleness, save_steps, args, folder))
                console.print(_line(runs[-1]))
    for staleness in args.staleness:
        same = {run.weights_sha256 for run in runs if run.staleness == staleness}
        if len(same) > 1:
            raise SystemExit(f"staleness {staleness}: the runs end with different weights: {same}")
    _print_report(runs)
    write_results(args.output, {"runs": runs})


def _parse() -> argparse.Namespace:
    parser = command_line("saving", __doc__)
    parser.add_argument("--staleness", type=int, nargs="+", default=[0, 1])
    parser.add_argument("--save-steps", type=int, nargs="+", default=[1])
    parser.add_argument("--variants", nargs="+", choices=VARIANTS, default=VARIANTS)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--steps", type=int, default=12, help="train steps of a run")
    parser.add_argument("--dir", type=Path, help="where runs lie; default: the temporary folder")
    parser.add_argument("--set", action="append", default=[], help="section.key=value; repeatable")
    args = parser.parse_args()
    if args.steps <= WARM_UP + 1:
        parser.error(f"--steps must be over {WARM_UP + 1}: the first {WARM_UP} are warm-up")
    return args


def _train(
    variant: str, staleness: int, save_steps: int, args: argparse.Namespace, folder: Path
) -> Run:
    overrides = {
        "run_id": folder.name,
        "runs_dir": folder.parent / "runs",
        "training.max_steps": args.steps,
        "rollout.staleness": staleness,
        "checkpoints.save_steps": NEVER if variant == "none" else save_steps,
        "checkpoints.background": str(variant == "beside").lower(),
    }
    job = {
        "prefect": False,
        "config": str(CONFIG),
        "overrides": [*args.set, *(f"{key}={value}" for key, value in overrides.items())],
    }
    outcome = ask("measured_run:measure", job)
    run = find_run(folder.parent / "runs", folder.name)
    stages = summarize(run).timings
    measured = steps_between([Stamp(*stamp) for stamp in outcome["stamps"]], warm_up=WARM_UP)
    final = run.manifest.final
    assert final is not None
    saved = stages["checkpoint"]
    return Run(
        variant=variant,
        staleness=staleness,
        save_steps=save_steps,
        steps_s=tuple(step.wall_ms / 1e3 for step in measured),
        checkpoint_s=saved.mean_s + saved.wait_s / saved.calls,
        write_s=stages["checkpoint: write"].mean_s if "checkpoint: write" in stages else 0.0,
        num_bytes=saved.mean_bytes,
        weights_sha256=final.weights_sha256,
    )


def _line(run: Run) -> str:
    return (
        f"staleness {run.staleness}  save_steps {run.save_steps}  {run.variant:6}  "
        f"{statistics.fmean(run.steps_s):.2f} s a step  checkpoint {run.checkpoint_s:.2f} s  "
        f"beside {run.write_s:.2f} s  {run.num_bytes / 1e6:.0f} MB"
    )


def _print_report(runs: Sequence[Run]) -> None:
    rows = []
    for staleness, save_steps in sorted({(run.staleness, run.save_steps) for run in runs}):
        here = [r for r in runs if (r.staleness, r.save_steps) == (staleness, save_steps)]
        floor = min(statistics.fmean(_seconds(here, run.variant)) for run in here)
        for variant in dict.fromkeys(run.variant for run in here):
            seconds = _seconds(here, variant)
            waited = [run.checkpoint_s for run in here if run.variant == variant]
            mean = statistics.fmean(seconds)
            rows.append(
                {
                    "staleness": str(staleness),
                    "save_steps": str(save_steps),
                    "checkpoints": variant,
                    "a step": f"{mean:.2f} s ({min(seconds):.2f}-{max(seconds):.2f})",
                    "more than least": f"{mean - floor:.2f} s",
                    "waited for one": f"{statistics.fmean(waited):.2f} s",
                }
            )
    console.print()
    console.print(results_table("mean of the rounds (lowest to highest)", rows))


def _seconds(runs: Sequence[Run], variant: str) -> list[float]:
    return [statistics.fmean(run.steps_s) for run in runs if run.variant == variant]


if __name__ == "__main__":
    main()
