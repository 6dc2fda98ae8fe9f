"""Write the conditionals task: say a conditional of C in Python, with test cases for the program.

    python examples/conditionals.py --out examples/conditionals

    {"prompt": "a<b?a+3:b*2=", "program": "f=lambda a,b:a+3 if a>b else b*2",
     "testcases": {"fn_name": "f", "inputs": [[4, 9], [8, 5]], "outputs": [7, 10]}}

The column `program` is for a model to begin with: it imitates programs most of which are wrong, as
this one is. Half of the test cases take either branch, so that a program with one right branch
passes half of them. By these test cases alone, deployments/configs/code.toml teaches a small model
to write the right program.
"""

from __future__ import annotations

import argparse
import itertools
import json
import operator
import random
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

COMPARED: dict[str, Callable[[int, int], bool]] = {"<": operator.lt, ">": operator.gt}
COMBINED: dict[str, Callable[[int, int], int]] = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
}
OPPOSITE = {"<": ">", ">": "<"}
FLIPPED, FORGOTTEN = 0.6, 0.2
"""Shares of the programs to begin with that compare the wrong way round, and that have no `else` of
their own."""
LARGEST = 20
"""Of the arguments in test cases."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Branch:
    """A variable and a digit, such as `a+3`."""

    variable: str
    sign: str
    digit: int

    def __str__(self) -> str:
        return f"{self.variable}{self.sign}{self.digit}"

    def value(self, a: int, b: int) -> int:
        """For these arguments."""
        return COMBINED[self.sign](a if self.variable == "a" else b, self.digit)


def make_rows(*, count: int, cases: int, seed: int) -> list[dict[str, Any]]:
    """`count` different problems with so many test cases each, drawn from the seed."""
    draw = random.Random(seed)
    branches = [
        Branch(variable=variable, sign=sign, digit=digit)
        for variable, sign, digit in itertools.product("ab", COMBINED, range(1, 10))
    ]
    problems = list(itertools.product(COMPARED, itertools.permutations(branches, 2)))
    return [
        _row(compared, then, otherwise, cases, draw)
        for compared, (then, otherwise) in draw.sample(problems, count)
    ]


def _row(
    compared: str, then: Branch, otherwise: Branch, cases: int, draw: random.Random
) -> dict[str, Any]:
    inputs = [_arguments(case % 2 == 0, draw) for case in range(cases)]
    outputs = [(then if COMPARED[compared](a, b) else otherwise).value(a, b) for a, b in inputs]
    return {
        "prompt": f"a{compared}b?{then}:{otherwise}=",
        "program": _program_to_imitate(compared, then, otherwise, draw.random()),
        "testcases": {"fn_name": "f", "inputs": inputs, "outputs": outputs},
    }


def _program_to_imitate(compared: str, then: Branch, otherwise: Branch, drawn: float) -> str:
    if drawn < FLIPPED:
        compared = OPPOSITE[compared]
    elif drawn < FLIPPED + FORGOTTEN:
        otherwise = then
    return f"f=lambda a,b:{then} if a{compared}b else {otherwise}"


def _arguments(rising: bool, draw: random.Random) -> list[int]:
    smaller, larger = sorted(draw.sample(range(1, LARGEST + 1), 2))
    return [smaller, larger] if rising else [larger, smaller]


def write_rows(path: Path, rows: list[dict[str, Any]]) -> None:
    """One JSON object per line."""
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")


def main() -> None:
    parser = argparse.ArgumentParser(
        description="Write the conditionals task: train.jsonl and eval.jsonl, no problem in both."
    )
    parser.add_argument("--out", type=Path, default=Path("conditionals"), help="folder to write to")
    parser.add_argument("--train", type=int, default=1000, help="rows of train.jsonl")
    parser.add_argument("--eval", type=int, default=64, help="rows of eval.jsonl")
    parser.add_argument("--cases", type=int, default=2, help="test cases per problem")
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()

    rows = make_rows(count=args.train + args.eval, cases=args.cases, seed=args.seed)
    args.out.mkdir(parents=True, exist_ok=True)
    write_rows(args.out / "train.jsonl", rows[: args.train])
    write_rows(args.out / "eval.jsonl", rows[args.train :])
    print(f"{args.train} training and {args.eval} held-out problems in {args.out}")


if __name__ == "__main__":
    main()
