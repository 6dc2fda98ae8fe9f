"""Write the letters task: reverse a few letters, `{"prompt": "abc=", "answer": "cba"}` per line.

    python examples/letters.py --out examples/letters

A task of this kind needs no hub and no GPU: deployments/configs/demo.toml teaches it to a model of
87,000 parameters on a CPU.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from mortal.demo import as_lines, make_rows


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
    (args.out / "train.jsonl").write_text(as_lines(rows[: args.train]), encoding="utf-8")
    (args.out / "eval.jsonl").write_text(as_lines(rows[args.train :]), encoding="utf-8")
    print(f"{args.train} training and {args.eval} held-out problems in {args.out}")


if __name__ == "__main__":
    main()
