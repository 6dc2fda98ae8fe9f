"""Write the letters task: reverse a few letters, `{"prompt": "abc=", "answer": "cba"}` per line.

    python examples/letters.py --out examples/letters

A task of this kind needs no hub and no GPU: deployments/configs/demo.toml teaches it to a model of
87,000 parameters on a CPU.
"""

from __future__ import annotations

import argparse
import json
import random
import string
from pathlib import Path


def make_rows(*, letters: int, count: int, seed: int) -> list[dict[str, str]]:
    """`count` different problems of `letters` letters each, drawn from the seed."""
    draw = random.Random(seed)
    words: dict[str, None] = {}
    while len(words) < count:
        words["".join(draw.choices(string.ascii_lowercase, k=letters))] = None
    return [{"prompt": f"{word}=", "answer": word[::-1]} for word in words]


def write_rows(path: Path, rows: list[dict[str, str]]) -> None:
    """One JSON object per line."""
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")


def main() -> None:
    parser = argparse.ArgumentParser(
        description="Write the letters task: train.jsonl and eval.jsonl, which share no problem."
    )
    parser.add_argument("--out", type=Path, default=Path("letters"), help="folder to write to")
    parser.add_argument("--letters", type=int, default=3, help="letters per problem")
    parser.add_argument("--train", type=int, default=2000, help="rows of train.jsonl")
    parser.add_argument("--eval", type=int, default=200, help="rows of eval.jsonl")
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()

    if min(args.letters, args.train, args.eval) < 1:
        parser.error("--letters, --train and --eval must be at least 1")
    if args.train + args.eval > 26**args.letters:
        parser.error(
            f"there are only {26**args.letters} different problems of {args.letters} letters; "
            "ask for fewer rows or more letters"
        )
    rows = make_rows(letters=args.letters, count=args.train + args.eval, seed=args.seed)
    args.out.mkdir(parents=True, exist_ok=True)
    write_rows(args.out / "train.jsonl", rows[: args.train])
    write_rows(args.out / "eval.jsonl", rows[args.train :])
    print(f"{args.train} training and {args.eval} held-out problems in {args.out}")


if __name__ == "__main__":
    main()
