"""Draw configurations at random, and make each run three times: the same bits?

    python -m benchmarks.parity                          # 200 configurations, about an hour
    python -m benchmarks.parity --seed 7 --count 20
    python -m benchmarks.parity --algorithm rloo      # or distillation, opd
    python -m benchmarks.parity --algorithm sft --count 100   # or dpo, kto, reward
    python -m benchmarks.parity --ranks 2 --count 40   # every second one by FSDP2
    python -m benchmarks.parity --kept --count 50      # batches of which a selection kept a part
    python -m benchmarks.parity --seed 7 --only 13 --keep /tmp/case   # one of them, with its files

Stock `train()` of GRPOTrainer, RLOOTrainer or a DistillationTrainer, the actor on the same recorded
batches, and the actor again in processes that are killed with SIGKILL. Compared without tolerance:
the weights after each optimizer update, every metric, the final model; between the two actors the
state ids and the state, too. With GRPO, dialogues with tools are drawn besides:
`benchmarks.parity.tools`.
"""

import argparse
import collections
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import torch

from benchmarks.output import command_line, console, folder_for, results_table, write_results
from benchmarks.parity.tools import Compared, compare
from tests.support.environments.drawn import draw as draw_with_tools
from tests.support.parity.cases import Case, draw, draw_kept, draw_on_ranks
from tests.support.parity.rows_cases import KINDS, attempt_rows, draw_rows, draw_rows_on_ranks
from tests.support.parity.trial import Trial, attempt, context


def main() -> int:
    args = _parse()
    torch.set_num_threads(1)
    if args.algorithm in KINDS:
        return _of_rows(args)
    numbers = args.only or range(args.count)
    if args.kept:
        cases = [draw_kept(args.seed, each, args.ranks, args.algorithm) for each in numbers]
        args.tools = 0
    elif args.ranks == 1:
        cases = [draw(args.seed, number, algorithm=args.algorithm) for number in numbers]
    else:
        cases = [draw_on_ranks(args.seed, each, args.ranks, args.algorithm) for each in numbers]
        args.tools = 0
    began = time.perf_counter()
    with folder_for("parity", keep=args.keep) as folder:
        trials = []
        for trial in _attempts(cases, folder, args.jobs):
            trials.append(trial)
            console.print(_line(trial), markup=False)
    dialogues = []
    for number in range(0 if args.only or args.algorithm != "grpo" else args.tools):
        dialogues.append(compare(f"tools-{number}", draw_with_tools(args.seed, number)))
        console.print(str(dialogues[-1]))
    drawn = f"{args.algorithm}, seed {args.seed}"
    _report(drawn, trials, dialogues, time.perf_counter() - began)
    results = {"trials": trials, "with_tools": dialogues}
    write_results(args.output, {"seed": args.seed, "algorithm": args.algorithm, **results})
    outcomes = [*(each.outcome for each in trials), *(each.outcome for each in dialogues)]
    return any(outcome in ("different", "failed") for outcome in outcomes)


def _parse() -> argparse.Namespace:
    parser = command_line("parity", __doc__)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument(
        "--algorithm", choices=["grpo", "rloo", "distillation", "opd", *KINDS], default="grpo"
    )
    parser.add_argument("--count", type=int, default=200, help="configurations to draw")
    parser.add_argument("--tools", type=int, default=40, help="dialogues with tools to draw (GRPO)")
    parser.add_argument("--ranks", type=int, default=1, help="processes that train together")
    parser.add_argument("--kept", action="store_true", help="train on a part of what is sampled")
    parser.add_argument("--only", type=int, nargs="+", metavar="NUMBER", help="these alone")
    parser.add_argument("--jobs", type=int, default=1, help="configurations at a time")
    parser.add_argument("--keep", type=Path, help="new folder for the files of the runs")
    args = parser.parse_args()
    if args.keep and args.keep.exists():
        # Ranks would meet over the files by which those of an earlier run have met.
        parser.error(f"--keep {args.keep} exists; name a folder that does not")
    return args


def _of_rows(args: argparse.Namespace) -> int:
    """Train each case three times: by stock `.train()`, step by step, and step by step begun again
    in a new process from the state at a drawn step. With several ranks, the one that is begun again
    was killed before, or another rank of it. Compared without tolerance: weights, optimizer,
    schedule, tokens seen, a moving reference model, every metric and evaluation."""
    began, trials = time.perf_counter(), []
    with folder_for("parity", keep=args.keep) as folder:
        for number in args.only or range(args.count):
            drawn = (args.algorithm, args.seed, number)
            several = args.ranks > 1
            case = draw_rows_on_ranks(*drawn, args.ranks) if several else draw_rows(*drawn)
            trial = attempt_rows(case, folder / f"case-{number}")
            trials.append(trial)
            console.print(
                f"{number:4}  {trial.outcome:9}  {trial.num_steps} steps, begun again at "
                f"{trial.begun_again}  {trial.found or trial.settings}",
                markup=False,
            )
    counts = collections.Counter(trial.outcome for trial in trials)
    console.print(
        f"\n{args.algorithm}, seed {args.seed}: "
        f"{', '.join(f'{count} {outcome}' for outcome, count in counts.items())}, "
        f"{time.perf_counter() - began:.0f} s"
    )
    write_results(args.output, {"algorithm": args.algorithm, "seed": args.seed, "trials": trials})
    return int(any(trial.outcome in ("different", "failed") for trial in trials))


def _attempts(cases: list[Case], folder: Path, jobs: int) -> Iterator[Trial]:
    processes = context()
    with ThreadPoolExecutor(jobs) as pool:
        yield from pool.map(
            lambda case: attempt(case, folder / f"case-{case.number}", processes), cases
        )


def _line(trial: Trial) -> str:
    case = trial.case
    lora = "LoRA" if case.training.get("use_lora") else "full"
    parts = [
        f"{case.number:4}",
        f"{trial.outcome:9}",
        f"{case.architecture:11}",
        f"{lora} {case.model['dtype']:8}",
        _on_ranks(case),
        _kept(case),
        f"{case.optimizer}, {case.schedule}, {_method(case)}",
        f"{trial.num_updates} updates, {trial.num_kills} kills",
        trial.found,
    ]
    return "  ".join(filter(None, parts))


def _on_ranks(case: Case) -> str:
    ranks = case.training.get("ranks", 1)
    return "" if ranks == 1 else f"{ranks} ranks, {case.training.get('sharding', 'none')}"


def _kept(case: Case) -> str:
    return f"{case.kept.num_kept} of {case.kept.num_sampled} kept" if case.kept else ""


def _method(case: Case) -> str:
    return str(case.training.get("loss_type", case.algorithm["type"]))


def _report(drawn: str, trials: list[Trial], dialogues: list[Compared], took_s: float) -> None:
    count = len(trials) + len(dialogues)
    title = f"{count} configurations of {drawn} in {took_s / 60:.0f} min"
    done: list[tuple[str, int, int]] = [
        (each.outcome, each.num_updates, each.num_kills) for each in trials
    ]
    done += [(f"{each.outcome}, with tools", each.updates, 0) for each in dialogues]
    rows = []
    for outcome, number in collections.Counter(outcome for outcome, *_ in done).most_common():
        updates, kills = zip(*(counts for found, *counts in done if found == outcome), strict=True)
        counted = {"number": number, "updates": sum(updates), "kills": sum(kills)}
        rows.append({"outcome": outcome, **{name: str(count) for name, count in counted.items()}})
    console.print(results_table(title, rows, left=["outcome"]))
    for field in ("architecture", "optimizer", "schedule"):
        kinds = {getattr(trial.case, field) for trial in trials if trial.outcome == "equal"}
        console.print(f"{len(kinds)} of {field}: {', '.join(sorted(kinds))}")


if __name__ == "__main__":
    raise SystemExit(main())
