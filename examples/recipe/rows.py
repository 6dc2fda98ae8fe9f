"""Write the rows of the recipe: demonstrations of the letters task, and pairs of answers to it.

    python -m examples.recipe.rows

The demonstrations reverse three letters; every other one or so ends with a full stop. Whoever chose
from the pairs wants three letters and a full stop, and never looked whether the letters are right.
"""

from __future__ import annotations

import json
import random
import string
from pathlib import Path

from mortal.demo import as_lines

HERE = Path(__file__).parent
LETTERS = HERE.parent / "letters"
NUM_DEMONSTRATIONS = 250
"""Of the 2,000 problems: too few to learn the task from them alone."""


def demonstration(row: dict[str, str], draw: random.Random) -> dict[str, str]:
    """Return a row for `algorithm.type = "sft"`."""
    end = draw.choice(["", "."])
    return {"prompt": row["prompt"], "completion": f"{row['answer']}{end}"}


def preference(row: dict[str, str], draw: random.Random) -> dict[str, str]:
    """Return a row for `algorithm.type = "reward"`."""
    answer, at = row["answer"], draw.randrange(len(row["answer"]))
    too_short = answer[:at] + answer[at + 1 :]
    too_long = answer[:at] + draw.choice(string.ascii_lowercase) + answer[at:]
    rejected = draw.choice([answer, answer, f"{answer}..", f"{too_short}.", f"{too_long}."])
    return {"prompt": row["prompt"], "chosen": f"{answer}.", "rejected": rejected}


def make_rows(split: str) -> dict[str, list[dict[str, str]]]:
    """Return the rows of each file: demonstrations and preferences of a split of the letters."""
    draw = random.Random(split)
    lines = (LETTERS / f"{split}.jsonl").read_text(encoding="utf-8").splitlines()
    rows = [json.loads(line) for line in lines]
    return {
        "demonstrations": [demonstration(row, draw) for row in rows[:NUM_DEMONSTRATIONS]],
        "preferences": [preference(row, draw) for row in rows],
    }


def main() -> None:
    """Write the files beside this one."""
    for split in ("train", "eval"):
        for name, rows in make_rows(split).items():
            (HERE / f"{name}-{split}.jsonl").write_text(as_lines(rows), encoding="utf-8")
            print(f"{len(rows)} rows in {name}-{split}.jsonl")


if __name__ == "__main__":
    main()
