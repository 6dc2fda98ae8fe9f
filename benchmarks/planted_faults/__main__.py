"""Faults between trainer and sampler: stock TRL beside MORTAL.

    python -m benchmarks.planted_faults
    python -m benchmarks.planted_faults --learning-rates 1e-3 1e-6 --steps 6

A fault is planted in what the sampler is given, once two syncs have gone well: nothing arrives, one
tensor does not, or one value is off by its last bit. Stock `GRPOTrainer.train()` runs to the end
of its steps or stops; MORTAL's worker refuses the version or takes it. `off by` is how far the
sampler's log-probabilities of a probe are from the trainer's, in nats: at the end of TRL's steps,
and of the version that MORTAL refuses, whose canary alone would let less than 0.001 pass. TRL's
metric is `sampling_logp_difference/max`, before the fault and at the end.

Exit code 1 if MORTAL takes a version that it should refuse.
"""

from __future__ import annotations

import argparse
import logging
import sys
import tempfile
from itertools import product
from pathlib import Path
from typing import Any

import torch

from benchmarks.output import add_output_option, console, results_table, write_results
from benchmarks.planted_faults import mortal, stock
from mortal_steps.config import NewModelConfig
from mortal_steps.config.rollout import WEIGHT_SYNC
from mortal_steps.policy.starting_model.new_model import build_model

FAULTS = ("nothing delivered", "one tensor not delivered", "one value off by its last bit")


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.planted_faults")
    parser.add_argument("--steps", type=int, default=6, help="of stock TRL's runs")
    parser.add_argument("--learning-rates", type=float, nargs="+", default=[1e-3, 1e-6])
    add_output_option(parser, "planted_faults")
    args = parser.parse_args()
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory(prefix="planted-") as folder:
        model = Path(folder) / "model"
        build_model(model, NewModelConfig(), seed=0)
        cases = product((False, True), args.learning_rates, FAULTS)
        rows = [_measure(Path(folder), str(model), *case, steps=args.steps) for case in cases]
    _show(rows)
    write_results(args.output, {"steps": args.steps, "rows": rows})
    sys.exit(any(not found["refused"] for row in rows for found in row["mortal"].values()))


def _measure(
    root: Path, model: str, lora: bool, learning_rate: float, fault: str, *, steps: int
) -> dict[str, Any]:
    chosen: dict[str, Any] = {"lora": lora, "fault": fault, "learning_rate": learning_rate}
    trl = None
    if fault != FAULTS[-1]:
        trl = stock.train(model, Path(tempfile.mkdtemp(dir=root)), steps=steps, **chosen)
    logging.disable(logging.WARNING)  # MORTAL's actor trains on made-up rollouts
    refusals = {
        method: mortal.sync(model, Path(tempfile.mkdtemp(dir=root)), method=method, **chosen)
        for method in WEIGHT_SYNC
    }
    logging.disable(logging.NOTSET)
    return {**chosen, "trl": trl, "mortal": refusals}


def _show(rows: list[dict[str, Any]]) -> None:
    names = (
        "trained",
        "learning rate",
        "fault",
        "stock TRL",
        "off by",
        "its metric",
        "MORTAL",
        "off by",
    )
    table = results_table("Faults between trainer and sampler", *names, left=names)
    for row in rows:
        trl, found = row["trl"], row["mortal"]
        refused = [method for method, answer in found.items() if answer["refused"]]
        table.add_row(
            "adapter" if row["lora"] else "all weights",
            f"{row['learning_rate']:g}",
            row["fault"],
            f"trains {trl['steps']} steps, says {trl['said'] or 'nothing'}" if trl else "not run",
            f"{trl['off_by']:.2g}" if trl else "",
            "{:.1g}, then {:.1g}".format(*trl["metric"]) if trl else "",
            f"refused by {len(refused)} of {len(found)} ways, at the first sync",
            f"{max(answer['off_by'] for answer in found.values()):.2g}",
        )
    console.print(table)


if __name__ == "__main__":
    main()
