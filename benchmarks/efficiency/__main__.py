"""How many tokens does each selection sample until held-out problems are solved?

    python -m benchmarks.efficiency                                  # days on two cores
    python -m benchmarks.efficiency --tasks mixture --seeds 0 1 --selections all curriculum
    python -m benchmarks.efficiency --rates 7e-4 1.4e-3 --iterations 1 2
    python -m benchmarks.efficiency --table                          # of what was measured so far

The policy is that of the demo; with `--start warm` it begins after more supervised steps. The goal
is a mean of .80 right in two evaluations in a row, of 200 held-out problems of three letters, each
sampled once at temperature 1, as training samples; there is one every ten steps. Spelling and sums
have a configuration and a goal of their own (tasks.py): `--start demo`. Sums train SmolLM2, which
`make train-smollm` fetches; ten minutes or so a run. Each selection is compared with `all` of the
same seed, both at their own best of the learning rates.

Runs that the file of results has are not made again, so that a part can be measured at a time.
"""

import argparse
import itertools
import json
import math
import statistics
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.efficiency.tasks import TASKS
from benchmarks.jobs import Failed, ask
from benchmarks.output import command_line, console, folder_for, results_table, write_results

SELECTIONS = {
    "all": [],
    "curriculum": ["selection.type=curriculum", "selection.column=kind"],
    "no column": ["selection.type=curriculum"],
    "screen": ["selection.type=screen"],
    "dynamic": ["selection.type=dynamic"],
}
STARTS = {"demo": [], "warm": ["model.warm_start.steps=120"]}
ASKED = ("task", "start", "iterations", "rate", "selection", "seed", "goal", "max_steps")
"""What a run is a function of."""

Run = Mapping[str, Any]


def main() -> None:
    args = _parse()
    runs = json.loads(args.output.read_text())["runs"] if args.output.exists() else []
    measured = {_asked(run) for run in runs}
    for job in [] if args.table else _jobs(args):
        if _asked(job) in measured:
            continue
        with folder_for("efficiency") as folder:
            runs.append(_run(folder, job))
        console.print(_line(runs[-1]))
        write_results(args.output, {"runs": runs}, told=False)
    _print(runs)


def _parse() -> argparse.Namespace:
    parser = command_line("efficiency", __doc__)
    parser.add_argument("--tasks", nargs="+", choices=list(TASKS), default=list(TASKS))
    parser.add_argument(
        "--selections", nargs="+", choices=list(SELECTIONS), default=list(SELECTIONS)
    )
    parser.add_argument("--start", choices=list(STARTS), default="warm")
    parser.add_argument("--rates", nargs="+", type=float, default=[7e-4, 1.4e-3, 2.8e-3])
    parser.add_argument("--iterations", nargs="+", type=int, default=[1, 2])
    parser.add_argument("--seeds", nargs="+", type=int, default=list(range(5)))
    parser.add_argument("--goal", type=float, help="share that is right; default: the task's")
    parser.add_argument("--max-steps", type=int, default=400)
    parser.add_argument("--table", action="store_true", help="print what was measured, no more")
    return parser.parse_args()


def _jobs(args: argparse.Namespace) -> Iterator[dict[str, Any]]:
    drawn = itertools.product(args.seeds, args.tasks, args.iterations, args.rates, args.selections)
    for seed, task, iterations, rate, selection in drawn:
        goal = TASKS[task].goal if args.goal is None else args.goal
        yield {
            **{"task": task, "start": args.start, "iterations": iterations, "rate": rate},
            **{"selection": selection, "seed": seed, "goal": goal},
            "max_steps": args.max_steps,
        }


def _asked(run: Run) -> tuple[Any, ...]:
    return tuple(run[name] for name in ASKED)


def _run(folder: Path, job: dict[str, Any]) -> dict[str, Any]:
    overrides = [
        *(*SELECTIONS[job["selection"]], *STARTS[job["start"]]),
        f"training.num_iterations={job['iterations']}",
        f"training.learning_rate={job['rate']}",
    ]
    given = {**job, "overrides": overrides, "folder": str(folder / "run")}
    variables = {"OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"}
    try:
        return {**job, **ask("efficiency.run:measure", given, variables=variables)}
    except Failed as error:
        raise SystemExit(f"{error}\nthis run has failed: {json.dumps(job)}") from None


def _line(run: Run) -> str:
    reached = f"{run['tokens']:,} tokens" if run["reached"] else "not reached"
    names = f"{run['task']:<8} {run['start']} {run['iterations']} x {run['rate']:g}"
    steps = f"{run['steps']} steps, {run['cpu_s']:.0f} s CPU"
    return f"{names:<26} seed {run['seed']} {run['selection']:<11} {reached} in {steps}"


def _print(runs: Sequence[Run]) -> None:
    """Print the tokens of each selection at its best learning rate, beside those of `all`."""
    settings = dict.fromkeys(tuple(run[name] for name in ASKED[:3]) for run in runs)
    rows = [
        _row(runs, mine, setting, name)
        for setting in settings
        for name in SELECTIONS
        if (mine := _at_best_rate(runs, (*setting, name)))
    ]
    left = ("task", "start", "selection", "mean, 95 %", "of each seed")
    console.print(results_table("tokens to the goal, each at its best learning rate", rows, left))


def _row(
    runs: Sequence[Run], mine: Mapping[int, Run], setting: tuple[Any, ...], name: str
) -> dict[str, str]:
    task, start, iterations = setting
    usual = (task, start, 1, "all")
    rate = next(iter(mine.values()))["rate"]
    ratios = _ratios(mine, _at_best_rate(runs, usual))
    return {
        "task": task,
        "start": start,
        "iterations": str(iterations),
        "selection": name,
        "rate": f"{rate:g}",
        "seeds": str(len(mine)),
        "tokens, median": _told(statistics.median(map(_tokens, mine.values())), ",.0f"),
        "beside `all`, 1 iteration": _median(ratios),
        "mean, 95 %": _interval(ratios),
        "of each seed": " ".join(f"{each:.2f}" for each in sorted(ratios)),
        "of those at one rate": _median(_ratios(mine, _at_rate(runs, usual, rate))),
    }


def _at_best_rate(runs: Sequence[Run], place: tuple[Any, ...]) -> Mapping[int, Run]:
    """Return the runs of a place by seed, at the learning rate with the lowest median."""
    rates = sorted({run["rate"] for run in runs if _place(run) == place})
    found = [_at_rate(runs, place, rate) for rate in rates]
    # A rate that was tried with fewer seeds is not compared.
    most = max(map(len, found), default=0)
    whole = [each for each in found if len(each) == most]
    return min(whole, key=lambda each: statistics.median(map(_tokens, each.values())), default={})


def _at_rate(runs: Sequence[Run], place: tuple[Any, ...], rate: float) -> Mapping[int, Run]:
    return {run["seed"]: run for run in runs if _place(run) == place and run["rate"] == rate}


def _place(run: Run) -> tuple[Any, ...]:
    return run["task"], run["start"], run["iterations"], run["selection"]


def _tokens(run: Run) -> float:
    return float(run["tokens"]) if run["reached"] else float("inf")


def _ratios(mine: Mapping[int, Run], beside: Mapping[int, Run]) -> list[float]:
    """Return the ratio of the tokens by seed, where both are there and `all` came to the goal."""
    return [
        _tokens(run) / _tokens(beside[seed])
        for seed, run in mine.items()
        if seed in beside and beside[seed]["reached"]
    ]


def _median(ratios: Sequence[float]) -> str:
    return _told(statistics.median(ratios), ".2f") if ratios else ""


def _interval(ratios: Sequence[float]) -> str:
    """Return the geometric mean with the interval that Student's t gives the logarithms."""
    if len(ratios) < 2 or float("inf") in ratios or set(ratios) == {1.0}:
        return ""
    from scipy.stats import t as student

    logs = [math.log(each) for each in ratios]
    mean, deviation = statistics.mean(logs), statistics.stdev(logs)
    half = float(student.ppf(0.975, len(logs) - 1)) * deviation / math.sqrt(len(logs))
    low, middle, high = (math.exp(mean + part) for part in (-half, 0.0, half))
    return f"{middle:.2f} [{low:.2f} {high:.2f}]"


def _told(number: float, how: str) -> str:
    return "not reached" if number == float("inf") else f"{number:{how}}"


if __name__ == "__main__":
    main()
