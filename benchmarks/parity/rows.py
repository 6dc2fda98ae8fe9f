"""Draw configurations of TRL's trainers that learn from rows (SFT, DPO, KTO, reward models), and
train each three times: by stock `.train()`, step by step, and step by step begun again in a new
process from the state at a drawn step. With several ranks, the one that is begun again was killed
before, or another rank of it. Compared without tolerance: weights, optimizer, schedule, tokens
seen, a moving reference model, every metric and evaluation.
"""

from __future__ import annotations

import argparse
import collections
import tempfile
import time
from pathlib import Path

from benchmarks.output import console, write_results
from tests.support.parity.rows_cases import attempt_rows, draw_rows, draw_rows_on_ranks


def main(args: argparse.Namespace) -> int:
    """Draw as many as `args.count`; returns 1 if one is different or failed."""
    numbers = args.only or range(args.count)
    began, trials = time.perf_counter(), []
    with tempfile.TemporaryDirectory(prefix="parity-") as name:
        for number in numbers:
            drawn = (args.algorithm, args.seed, number)
            several = args.ranks > 1
            case = draw_rows_on_ranks(*drawn, args.ranks) if several else draw_rows(*drawn)
            trials.append(attempt_rows(case, (args.keep or Path(name)) / f"case-{number}"))
            trial = trials[-1]
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
