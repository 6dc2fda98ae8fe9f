"""Dialogues with tools: MORTAL's workers beside stock `GRPOTrainer(environment_factory=...)`.

    python -m benchmarks.episodes
    python -m benchmarks.episodes --parts slow faults

Both sides have the same tiny model, rows and engine, which samples 32 tokens a turn and says what a
script holds: 16 problems x 4 generations, four calls each.

- `slow`: the tool takes 0.5 s. Time of a step between the model's turns.
- `fast`: the tool takes no time. A whole step, with what MORTAL's stages commit.
- `processes`: cells and the ledger alone.
- `gateway`: what a turn costs that an agent asks for itself.
- `faults`: a fifth of the calls raise `ConnectionError`.

Exit code 1 if a score is invented, an episode masked that nothing struck, or a bit changed of what
nothing struck.
"""

from __future__ import annotations

import argparse
import logging
import statistics
import sys
import tempfile
from pathlib import Path
from typing import Any

import torch

from benchmarks.episodes import faults, gateway, processes
from benchmarks.episodes.scripted import NUM_CALLS
from benchmarks.episodes.sides import Mortal, Stock
from benchmarks.output import add_output_option, console, results_table, write_results
from tests.support.environments.models import build_model

PARTS = ("processes", "gateway", "fast", "slow", "faults")
PROBLEMS, GENERATIONS, PAUSE_S = 16, 4, 0.5
WARM_UP = 1


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.episodes")
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=PARTS)
    parser.add_argument("--steps", type=int, default=8, help="of the part `fast`")
    parser.add_argument("--seed", type=int, default=0, help="of the calls that fail")
    add_output_option(parser, "episodes")
    args = parser.parse_args()
    torch.set_num_threads(1)
    logging.disable(logging.WARNING)
    results: dict[str, Any] = {}
    with tempfile.TemporaryDirectory(prefix="episodes-") as name:
        folder = Path(name)
        model = str(build_model(folder / "model", "qwen3"))
        if "processes" in args.parts:
            results["processes"] = processes.measure(folder)
        if "gateway" in args.parts:
            results["gateway"] = gateway.measure(folder, model)
        if "fast" in args.parts:
            results["fast"] = _fast(folder, model, args.steps)
        if "slow" in args.parts:
            results["slow"] = _slow(folder, model)
        struck = faults.strike_all(folder, model, args.seed) if "faults" in args.parts else []
    if results:
        _show(results)
    if struck:
        _show_faults(struck)
    write_results(args.output, {**results, "faults": struck})
    sys.exit(any(not each.holds for each in struck if each.side != "trl"))


def _fast(folder: Path, model: str, steps: int) -> dict[str, float]:
    """Take steps of all sides in turn, so that what else the machine does meets them alike."""
    rows = [{"target": NUM_CALLS}] * PROBLEMS
    stock = Stock(folder / "trl", model, rows, generations=GENERATIONS)
    cells = {
        kind: Mortal(folder / kind, model, rows, generations=GENERATIONS, cell=kind)
        for kind in ("problem", "episode")
    }
    times: dict[str, list[float]] = {}
    for number in range(WARM_UP + steps):
        taken = {"stock TRL": stock.step()} | {
            f'cell = "{kind}"': mortal.step(number) for kind, mortal in cells.items()
        }
        for name, step in taken.items():
            times.setdefault(f"a step, {name}, s", []).append(step.seconds)
            times.setdefault(f"CPU time of it, {name}, s", []).append(step.cpu_s)
            times.setdefault(f"of it between turns, {name}, s", []).append(step.environment_s)
    for mortal in cells.values():
        mortal.close()
    return {name: statistics.median(each[WARM_UP:]) for name, each in times.items()}


def _slow(folder: Path, model: str) -> dict[str, float]:
    """Take one step of each side; MORTAL's processes of environments are there before."""
    found, rows = {}, [{"target": NUM_CALLS, "pause_s": PAUSE_S}] * PROBLEMS
    for kind in ("episode", "problem"):
        mortal = Mortal(folder / f"slow-{kind}", model, rows, generations=GENERATIONS, cell=kind)
        mortal.step(0)
        found[f'between turns, cell = "{kind}", s'] = mortal.step(1).environment_s
        mortal.close()
    stock = Stock(folder / "slow-trl", model, rows, generations=GENERATIONS)
    found["between turns, stock TRL, s"] = stock.step().environment_s
    return found


def _show(results: dict[str, dict[str, float]]) -> None:
    table = results_table("Episodes", "part", "figure", "", left=("part", "figure"))
    for part, figures in results.items():
        for name, value in figures.items():
            table.add_row(part, name, f"{value:.3g}")
    console.print(table)


def _show_faults(outcomes: list[faults.Outcome]) -> None:
    heads = [
        *("side", "a call that is made again", "struck", "told to the model", "invented scores"),
        *("new zeros", "masked", "masked, not struck", "untouched groups", "same bits"),
    ]
    table = results_table("A fifth of the calls raise ConnectionError", *heads, left=heads[:2])
    for each in outcomes:
        counts = [
            *(each.struck, each.told, each.invented, each.new_zeros, each.masked),
            *(each.wrongly_masked, each.untouched, each.same_bits),
        ]
        table.add_row(each.side, "is answered" if each.passes else "fails", *map(str, counts))
    console.print(table)


if __name__ == "__main__":
    main()
