"""How many tokens does each selection sample until held-out problems are solved?

    python -m benchmarks.efficiency                                  # hours on two cores
    python -m benchmarks.efficiency --tasks mixture --seeds 0 1 --selections all curriculum

The policy is that of the demo; with the options `warm` it begins after more supervised steps. The
goal is a mean of .80 right in two evaluations in a row, of 200 held-out problems of three letters,
each sampled once at temperature 1, as training samples; there is one every ten steps. Each
selection is compared with `all` of the same seed.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections import defaultdict
from pathlib import Path
from typing import Any

from rich.table import Table

from benchmarks.efficiency.tasks import TASKS
from benchmarks.jobs import ROOT
from benchmarks.output import add_output_option, console, write_results

SELECTIONS = {
    "all": [],
    "curriculum": ["selection.type=curriculum", "selection.column=kind"],
    "no column": ["selection.type=curriculum"],
    "screen": ["selection.type=screen"],
    "dynamic": ["selection.type=dynamic"],
}
OPTIONS = {
    "demo": [],
    "warm": ["model.warm_start.steps=120"],
    "2 iterations": ["training.num_iterations=2"],
    "3x rate": ["training.learning_rate=2.1e-3"],
}


def main() -> None:
    args = _parse()
    runs: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory(prefix="efficiency-") as folder:
        for task in args.tasks:
            for options in args.options:
                for seed in args.seeds:
                    for name in args.selections:
                        overrides = [*SELECTIONS[name], *OPTIONS[options]]
                        job = {"task": task, "options": options, "selection": name, "seed": seed}
                        rest = {"max_steps": args.max_steps, "goal": args.goal}
                        runs.append(
                            _run(Path(folder), len(runs), {**job, **rest, "overrides": overrides})
                        )
                        console.print(_line(runs[-1]))
                        write_results(args.output, {"runs": runs})
    _print(runs)


def _parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.efficiency",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--tasks", nargs="+", choices=list(TASKS), default=list(TASKS))
    parser.add_argument(
        "--selections", nargs="+", choices=list(SELECTIONS), default=list(SELECTIONS)
    )
    parser.add_argument("--options", nargs="+", choices=list(OPTIONS), default=["demo"])
    parser.add_argument("--seeds", nargs="+", type=int, default=list(range(5)))
    parser.add_argument("--goal", type=float, default=0.8)
    parser.add_argument("--max-steps", type=int, default=400)
    add_output_option(parser, "efficiency")
    return parser.parse_args()


def _run(folder: Path, number: int, job: dict[str, Any]) -> dict[str, Any]:
    output = folder / f"{number}.json"
    asked = json.dumps({**job, "folder": str(folder / str(number)), "output": str(output)})
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"}
    command = [sys.executable, "-m", "benchmarks.efficiency.run", asked]
    subprocess.run(command, check=True, cwd=ROOT, env=environment, stderr=subprocess.DEVNULL)
    found: dict[str, Any] = json.loads(output.read_text())
    return {name: value for name, value in found.items() if name not in ("folder", "output")}


def _line(run: dict[str, Any]) -> str:
    reached = f"{run['tokens']:,} tokens" if run["reached"] else "not reached"
    names = f"{run['task']:<8} {run['options']:<13} seed {run['seed']} {run['selection']:<11}"
    return f"{names} {reached} in {run['steps']} steps, {run['cpu_s']:.0f} s CPU"


def _print(runs: list[dict[str, Any]]) -> None:
    """Print the median of each selection's ratio to `all` of the same task, options and seed."""
    of_all = {_place(run): run for run in runs if run["selection"] == "all" and run["reached"]}
    found: dict[tuple[str, str, str], list[float]] = defaultdict(list)
    for run in runs:
        beside = of_all.get(_place(run))
        if beside is not None:
            key = (run["task"], run["options"], run["selection"])
            ratio = run["tokens"] / beside["tokens"] if run["reached"] else float("inf")
            found[key].append(ratio)
    table = Table("task", "options", "selection", "tokens beside `all`", "of each seed")
    for (task, options, name), ratios in found.items():
        each = " ".join(f"{ratio:.2f}" for ratio in sorted(ratios))
        table.add_row(task, options, name, f"{statistics.median(ratios):.2f}", each)
    console.print(table)


def _place(run: dict[str, Any]) -> tuple[str, str, int]:
    return run["task"], run["options"], run["seed"]


if __name__ == "__main__":
    main()
