"""Plant faults at the boundaries of scoring: is anything scored that nobody judged?

    python -m benchmarks.reward_faults                     # the table and the picture
    python -m benchmarks.reward_faults --only table
    python -m benchmarks.reward_faults --only picture --steps 120
    python -m benchmarks.reward_faults --only table --boundary judge --fault "status 429"

Each fault strikes a batch twice: once so that it passes, once so that it lasts. The reward worker
of a run scores it, in processes that are really hung, cut off and killed. Scores and advantages are
compared with those of the undisturbed batch to the bit. Exit code 1 if a score is invented, a
problem changes that nothing struck, or a fault that passes leaves a trace.
"""

from __future__ import annotations

import argparse
import contextlib
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from benchmarks.output import add_output_option, console, results_table, write_results
from benchmarks.reward_faults import functions, judge, picture, sandbox
from benchmarks.reward_faults.advantages import Advantages
from benchmarks.reward_faults.fault import Fault
from benchmarks.reward_faults.trial import Boundary, Outcome, score_undisturbed, strike

BOUNDARIES = ("reward", "judge", "sandbox")


def main() -> None:
    args = _parse()
    results: dict[str, object] = {}
    outcomes: list[Outcome] = []
    if args.only != "picture":
        outcomes = _campaign(args.boundary or BOUNDARIES, args.fault)
        _show(outcomes)
        results["faults"] = outcomes
    if args.only != "table":
        arms = picture.train_all(args.steps)
        picture.draw(args.picture, arms)
        console.print(f"drawn: {args.picture}")
        results["arms"] = list(arms.values())
    write_results(args.output, results)
    sys.exit(any(not outcome.holds for outcome in outcomes))


def _parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.reward_faults",
        description="Plant faults in rewards, judges and sandboxes: is a score invented?",
    )
    parser.add_argument("--only", choices=("table", "picture"))
    parser.add_argument("--boundary", nargs="+", choices=BOUNDARIES)
    parser.add_argument("--fault", nargs="+", help="the names of those to plant; default: all")
    parser.add_argument("--steps", type=int, default=120, help="of each run of the picture")
    parser.add_argument("--picture", type=Path, default=picture.PICTURE)
    add_output_option(parser, "reward_faults")
    return parser.parse_args()


def _campaign(boundaries: Sequence[str], names: Sequence[str] | None) -> list[Outcome]:
    outcomes = []
    with contextlib.ExitStack() as opened:
        folder = Path(opened.enter_context(tempfile.TemporaryDirectory(prefix="mortal-faults-")))
        advantages = Advantages(folder)
        for name in boundaries:
            with contextlib.ExitStack() as stage:
                boundary, faults = _boundary(name, stage, folder)
                undisturbed = score_undisturbed(boundary)
                for fault in faults:
                    if names is not None and fault.name not in names:
                        continue
                    for once in (True, False):
                        outcome = strike(
                            boundary,
                            fault,
                            once=once,
                            undisturbed=undisturbed,
                            advantages=advantages,
                        )
                        outcomes.append(outcome)
                        _tell(outcome)
    return outcomes


def _boundary(
    name: str, stage: contextlib.ExitStack, folder: Path
) -> tuple[Boundary, Sequence[Fault]]:
    if name == "judge":
        asked = stage.enter_context(judge.judge())
        made = Boundary(name=name, stage=asked, term=asked.term, timeout_s=judge.CALL_S)
        return made, judge.FAULTS
    if name == "sandbox":
        boxes = stage.enter_context(sandbox.boxes(folder))
        return Boundary(name=name, stage=boxes, term=boxes.term, programs=True), sandbox.FAULTS
    term = {"type": "function", "function": f"{functions.__file__}:lengths"}
    faults = [Fault(name=fault) for fault in functions.FAULTS]
    return Boundary(name=name, stage=None, term=term), faults


def _tell(outcome: Outcome) -> None:
    """As soon as it is there."""
    console.print(
        f"{outcome.boundary:<8} {outcome.fault:<40} {'lasts' if outcome.lasts else 'passes':<7} "
        f"{outcome.told:<28} {outcome.seconds:5.1f} s  {'' if outcome.holds else 'WRONG'}"
    )


def _show(outcomes: Sequence[Outcome]) -> None:
    """Print a row per fault."""
    heads = ("boundary", "fault", "passes", "lasts", "invented", "untouched", "same bits")
    table = results_table("faults", *heads, left=heads[:4])
    for passes, lasts in zip(outcomes[::2], outcomes[1::2], strict=True):
        both = (passes, lasts)
        untouched = sum(each.untouched for each in both)
        table.add_row(
            passes.boundary,
            passes.fault,
            passes.told,
            lasts.told,
            str(sum(each.invented for each in both)),
            str(untouched + sum(len(each.touched) for each in both)),
            str(untouched),
        )
    console.print(table)
    wrong = [outcome for outcome in outcomes if not outcome.holds]
    console.print(f"{len(outcomes)} faults planted, {len(wrong)} not as promised")


if __name__ == "__main__":
    main()
