"""Is what was sampled ever tokenized again? Dialogues with tools over TRL's chat templates.

    python -m benchmarks.token_truth                     # 100,000 turns
    python -m benchmarks.token_truth --turns 5000 --seed 7

Each turn is one of the many tokenizations of its text, as a model at temperature 1 says it. What an
engine sees in each turn, the completions, their spans, log-probabilities and messages are compared
with what TRL's own methods make of the same, token by token. Exit code 1 if anything differs.
"""

from __future__ import annotations

import argparse
import random
import sys
import time
from typing import Any

from benchmarks.output import add_output_option, console, results_table, write_results
from tests.support.environments.dialogues import Speaker, check, play
from tests.support.environments.models import FAMILIES


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.token_truth")
    parser.add_argument("--turns", type=int, default=100_000, help="over all templates")
    parser.add_argument("--seed", type=int, default=0)
    add_output_option(parser, "token_truth")
    args = parser.parse_args()
    began = time.monotonic()
    rows = [_drawn(name, -(-args.turns // len(FAMILIES)), args.seed) for name in FAMILIES]
    _show(rows, time.monotonic() - began)
    write_results(args.output, {"seed": args.seed, "rows": rows})
    sys.exit(any(row["different"] for row in rows))


def _drawn(name: str, num_turns: int, seed: int) -> dict[str, Any]:
    """Play dialogues with a template until so many turns were sampled."""
    speaker, rng = Speaker(name), random.Random(f"{seed} {name}")
    found = {"turns": 0, "calls": 0, "other": 0, "dialogues": 0}
    different: list[str] = []
    while found["turns"] < num_turns:
        played = play(speaker, rng)
        said = [tokens.token_ids for turns in played.engine.said for tokens in turns]
        found["other"] += sum(not speaker.is_canonical(ids) for ids in said)
        found["calls"] += sum(episode.num_calls for episode in played.episodes)
        found["dialogues"] += len(played.episodes)
        try:
            check(played)
        except AssertionError as error:
            different.append(str(error))
        found["turns"] += len(said)
    return {"template": name, **found, "different": different}


def _show(rows: list[dict[str, Any]], seconds: float) -> None:
    counts = ("turns", "dialogues", "calls", "other")
    names = ("template", "turns", "dialogues", "calls", "other tokens than the tokenizer's")
    table = results_table("Tokens", *names, "different", left=("template",))
    for row in rows:
        table.add_row(
            row["template"], *(f"{row[name]:,}" for name in counts), str(len(row["different"]))
        )
    totals = (f"{sum(row[name] for row in rows):,}" for name in counts)
    table.add_row("all", *totals, str(sum(len(row["different"]) for row in rows)))
    console.print(table)
    console.print(f"{seconds:.0f} s")


if __name__ == "__main__":
    main()
