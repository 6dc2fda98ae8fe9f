"""Environments by others: two steps of GRPO in each on a CPU, twice.

    python -m benchmarks.environments
    python -m benchmarks.environments --only FrozenLake gsm8k

They live in interpreters of their own (`make environments-env verifiers-env`). Exit code 1 if
a turn's tokens are not those that were sampled, or an environment fails.
"""

from __future__ import annotations

import argparse
import logging
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import torch

from benchmarks.environments.openenv_table import OPENENV_TABLE
from benchmarks.environments.playing import difference, play
from benchmarks.environments.table import NOT_HERE, TABLE, Tried
from benchmarks.environments.verifiers_table import VERIFIERS
from benchmarks.output import add_output_option, console, results_table, write_results
from mortal_steps.errors import MortalError
from tests.support.paths import ENVIRONMENTS_PYTHON, ROOT, VERIFIERS_PYTHONS

PACKAGES = Path(__file__).with_name("packages")
WORDS = """
import pathlib, sys
from english_words import get_english_words_set
folder = pathlib.Path(sys.argv[1], "corpora", "words")
folder.mkdir(parents=True)
words = sorted(get_english_words_set(["gcide"], lower=True, alpha=True))
for name in ("en", "en-basic"):
    (folder / name).write_text("\\n".join(words))
"""
"""Writes the word list that TextArena would load from the network."""
VERSION = "import importlib.metadata as m, sys; print(m.version(sys.argv[1]))"


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.environments")
    parser.add_argument("--python", default=str(ENVIRONMENTS_PYTHON))
    parser.add_argument("--only", nargs="+", default=[""], help="parts of names")
    add_output_option(parser, "environments")
    args = parser.parse_args()
    torch.set_num_threads(1)
    logging.disable(logging.WARNING)
    os.chdir(ROOT)
    chosen = [
        each
        for each in (*TABLE, *OPENENV_TABLE, *VERIFIERS)
        if any(part in each.name for part in args.only)
    ]
    rows = []
    with tempfile.TemporaryDirectory(prefix="words-") as folder:
        subprocess.run([args.python, "-c", WORDS, folder], check=True)
        os.environ |= {"NLTK_DATA": folder, "PYTHONPATH": str(PACKAGES)}
        for tried in chosen:
            python = VERIFIERS_PYTHONS[tried.version] if tried.version else args.python
            rows.append(_row(tried, str(python)))
            console.print(f"{len(rows)}: {rows[-1]}")
    _show(rows)
    write_results(args.output, {"environments": rows, "not here": NOT_HERE})
    sys.exit(any(row.get("failure") or row["drift"] for row in rows))


def _row(tried: Tried, python: str) -> dict[str, Any]:
    row: dict[str, Any] = {
        "name": tried.name,
        "package": f"{tried.package} {_version(tried.package, python)}",
        "lines": tried.num_lines,
        "drift": 0,
    }
    try:
        with tempfile.TemporaryDirectory(prefix="environments-") as name:
            first, second = (play(tried, python, Path(name) / each) for each in ("a", "b"))
    except MortalError as error:
        return {**row, "failure": str(error)}
    stops = sorted({each.stop for each in first.episodes})
    return {
        **row,
        "turns": first.turns,
        "episodes": len(first.episodes),
        "stops": stops,
        "drift": first.drift + second.drift,
        "ms_per_turn": 1000 * first.environment_s / first.turns,
        "seconds": first.seconds,
        "differs": difference(first, second),
    }


def _version(package: str, python: str) -> str:
    asked = subprocess.run([python, "-c", VERSION, package], capture_output=True, text=True)
    return asked.stdout.strip()


def _show(rows: list[dict[str, Any]]) -> None:
    columns = ("environment", "package", "lines", "turns", "drift", "ms a turn", "two runs")
    table = results_table("", *columns, left=("environment", "package", "two runs"))
    for row in rows:
        if "failure" in row:
            table.add_row(row["name"], row["package"], *[""] * 4, row["failure"][:80])
            continue
        told = row["differs"] or "the same"
        shown = (row["lines"], row["turns"], row["drift"], f"{row['ms_per_turn']:.1f}")
        table.add_row(row["name"], row["package"], *map(str, shown), told)
    console.print(table)
    for what, why in NOT_HERE.items():
        console.print(f"not here: {what}: {why}")


if __name__ == "__main__":
    main()
