"""Models that call tools, beside stock TRL's own tool loop: the same bits?

    python -m benchmarks.tool_parity                       # the listed cases, and 60 drawn ones
    python -m benchmarks.tool_parity --seed 7 --count 20 --drawn-only

Stock `GRPOTrainer(tools=..., environment_factory=...).train()`, of which only the sampling of a
turn is replaced by an engine with a run's seeds, and MORTAL's workers on the same rows. Compared
without tolerance: prompts, their ids, what was sampled and answered with its mask, messages,
rewards, weights after each optimizer update, and every metric. Exit code 1 if anything differs.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path

import torch

from benchmarks.output import add_output_option, console, results_table, write_results
from tests.support.environments.cases import Case, all_cases
from tests.support.environments.drawn import draw
from tests.support.environments.parity import both, differences
from tests.support.environments.stock import Outcome


@dataclass(kw_only=True)
class Compared:
    """A case, and what differed."""

    name: str
    case: Case
    episodes: int = 0
    turns: int = 0
    calls: int = 0
    updates: int = 0
    different: list[str] = field(default_factory=list)
    failed: str | None = None

    @property
    def outcome(self) -> str:
        """`equal`, `different` or `failed`."""
        return "failed" if self.failed else "different" if self.different else "equal"


def main() -> None:
    args = _parse()
    torch.set_num_threads(1)
    cases = {} if args.drawn_only else all_cases()
    cases |= {f"drawn-{n}": draw(args.seed, n) for n in range(args.count)}
    began, compared = time.monotonic(), []
    for name, case in cases.items():
        compared.append(compare(name, case))
        console.print(line(compared[-1]))
    _show(compared, time.monotonic() - began)
    write_results(args.output, {"seed": args.seed, "compared": compared})
    sys.exit(any(each.outcome != "equal" for each in compared))


def _parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.tool_parity")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--count", type=int, default=60, help="cases to draw")
    parser.add_argument("--drawn-only", action="store_true", help="leave out the listed cases")
    add_output_option(parser, "tool_parity")
    return parser.parse_args()


def compare(name: str, case: Case) -> Compared:
    """Make a case run by both, and say what differs."""
    found = Compared(name=name, case=case)
    try:
        with (
            tempfile.TemporaryDirectory(prefix="tool-parity-") as folder,
            contextlib.redirect_stdout(io.StringIO()),
        ):
            stock, ours = both(case, Path(folder))
    except Exception as error:  # noqa: BLE001 - one case that fails ends no others
        found.failed = f"{type(error).__name__}: {error}"
        return found
    found.different = differences(stock, ours)
    _count(found, stock)
    return found


def _count(found: Compared, stock: Outcome) -> None:
    rows = [row for step in stock.steps for row in step.messages]
    found.episodes, found.calls = len(rows), stock.num_calls
    found.turns = sum(message["role"] == "assistant" for row in rows for message in row)
    found.updates = len(stock.weights)


def line(each: Compared) -> str:
    """Return what to print of it."""
    return (
        f"{each.name:32} {each.case.family:22} {each.episodes:3} episodes {each.turns:3} turns "
        f"{each.calls:3} calls {each.updates:3} updates  {each.failed or each.outcome}"
    )


def _show(compared: list[Compared], seconds: float) -> None:
    counts = ("episodes", "turns", "calls", "updates")
    title = f"{len(compared)} cases in {seconds / 60:.0f} min"
    table = results_table(title, "outcome", "cases", *counts, left=("outcome",))
    for outcome in ("equal", "different", "failed"):
        of_it = [each for each in compared if each.outcome == outcome]
        sums = (f"{sum(getattr(each, count) for each in of_it):,}" for count in counts)
        table.add_row(outcome, str(len(of_it)), *sums)
    console.print(table)


if __name__ == "__main__":
    main()
