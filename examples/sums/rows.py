"""Write the sums task: chats that ask for the sum of two numbers, and the right answer.

    python -m examples.sums.rows --out examples/sums

    {"prompt": [{"role": "system", "content": "Calculate."},
                {"role": "user", "content": "What is 8 + 5?"}], "answer": "13"}

There are 144 sums of two numbers from 1 to 12; `5 + 8` and `8 + 5` are two of them. Those that are
held out are in no training row. The first training rows are written as demonstrations, too, with
`"completion": [{"role": "assistant", "content": "8 + 5 = 13."}]` in the place of the answer.
"""

from __future__ import annotations

import argparse
import json
import random
from pathlib import Path
from typing import Any

NUMBERS = range(1, 13)
SYSTEM = "Calculate."


def make_rows(*, seed: int) -> list[dict[str, Any]]:
    """All sums, in an order drawn from the seed."""
    pairs = [(first, second) for first in NUMBERS for second in NUMBERS]
    random.Random(seed).shuffle(pairs)
    return [_row(first, second) for first, second in pairs]


def _row(first: int, second: int) -> dict[str, Any]:
    asked = [
        {"role": "system", "content": SYSTEM},
        {"role": "user", "content": f"What is {first} + {second}?"},
    ]
    return {"prompt": asked, "answer": str(first + second)}


def demonstrated(row: dict[str, Any]) -> dict[str, Any]:
    """A row as a demonstration: the prompt, and what is to be said to it."""
    asked = row["prompt"][-1]["content"].removeprefix("What is ").rstrip("?")
    said = [{"role": "assistant", "content": f"{asked} = {row['answer']}."}]
    return {"prompt": row["prompt"], "completion": said}


def write_rows(path: Path, rows: list[dict[str, Any]]) -> None:
    """One JSON object per line."""
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")


def main() -> None:
    parser = argparse.ArgumentParser(
        description="Write the sums task: train.jsonl and eval.jsonl, which share no sum, and "
        "demonstrations.jsonl."
    )
    parser.add_argument("--out", type=Path, default=Path("sums"), help="folder to write to")
    parser.add_argument("--eval", type=int, default=44, help="rows of eval.jsonl")
    parser.add_argument("--demonstrations", type=int, default=16, help="rows of it")
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()

    rows = make_rows(seed=args.seed)
    if not 1 <= args.eval < len(rows):
        parser.error(f"--eval {args.eval}: there are {len(rows)} sums, some of which have to train")
    num_train = len(rows) - args.eval
    args.out.mkdir(parents=True, exist_ok=True)
    write_rows(args.out / "train.jsonl", rows[:num_train])
    write_rows(args.out / "eval.jsonl", rows[num_train:])
    shown = list(map(demonstrated, rows[: args.demonstrations]))
    write_rows(args.out / "demonstrations.jsonl", shown)
    print(f"{num_train} training and {args.eval} held-out problems in {args.out}")


if __name__ == "__main__":
    main()
