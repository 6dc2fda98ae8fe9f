"""The demo that needs nothing but MORTAL: its rows, from a seed, and the shipped configuration.

{"prompt": "abc=", "answer": "cba"}
"""

from __future__ import annotations

import json
import random
import string
from pathlib import Path

import mortal_deployments
from mortal_steps.store.files import write_atomically

SHIPPED = Path(mortal_deployments.__file__).parent / "configs" / "demo.toml"
ROWS = "examples/letters"
"""Where the rows of `SHIPPED` are, in a clone."""
LETTERS, NUM_TRAIN, NUM_EVAL, SEED = 3, 2000, 200, 0
"""Of the rows there."""


def write_demo(folder: Path) -> Path:
    """Write configuration and rows into the folder, except what is there already; return the
    configuration's path."""
    drawn = make_rows(letters=LETTERS, count=NUM_TRAIN + NUM_EVAL, seed=SEED)
    config = SHIPPED.read_text(encoding="utf-8").partition("\n\n")[2]
    about = f"# The demo: reverse three letters.\n#\n#     mortal train {folder}/demo.toml\n\n"
    files = {
        "demo.toml": about + config.replace(ROWS, folder.as_posix()),
        "train.jsonl": as_lines(drawn[:NUM_TRAIN]),
        "eval.jsonl": as_lines(drawn[NUM_TRAIN:]),
    }
    for name, text in files.items():
        if not (folder / name).exists():
            write_atomically(folder / name, text.encode())
    return folder / "demo.toml"


def make_rows(*, letters: int, count: int, seed: int) -> list[dict[str, str]]:
    """`count` different problems of `letters` letters each, drawn from the seed."""
    draw = random.Random(seed)
    words: dict[str, None] = {}
    while len(words) < count:
        words["".join(draw.choices(string.ascii_lowercase, k=letters))] = None
    return [{"prompt": f"{word}=", "answer": word[::-1]} for word in words]


def as_lines(rows: list[dict[str, str]]) -> str:
    """One JSON object per line."""
    return "".join(json.dumps(row) + "\n" for row in rows)
