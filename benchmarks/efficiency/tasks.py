"""Datasets of letters to reverse, of which more or less is of use to a policy that learns three."""

import json
import random
import string
from collections.abc import Iterator
from pathlib import Path

from benchmarks.jobs import ROOT

LETTERS = ROOT / "examples/letters"
TASKS = {
    "letters": {"three": 1800},
    "mixture": {"three": 600, "anything": 600, "seven": 600},
    "useless": {"three": 400, "anything": 200, "seven": 1400},
}
"""Rows of each kind: `three` letters, as in the demo; `anything`, for which every answer is right;
`seven` letters, which the policy never gets right."""

REWARD = """
def right(completions, answer, kind=None, **kwargs):
    kinds = kind or ["three"] * len(answer)
    pairs = zip(completions, answer, kinds)
    return [float(of == "anything" or text.strip() == wanted) for text, wanted, of in pairs]
"""


def write_task(name: str, folder: Path) -> None:
    """Write the rows of a task, the held-out ones and the reward function into a folder."""
    rows = list(_rows(name))
    random.Random(7).shuffle(rows)
    text = "".join(json.dumps(row) + "\n" for row in rows)
    (folder / "train.jsonl").write_text(text)
    (folder / "eval.jsonl").write_text((LETTERS / "eval.jsonl").read_text())
    (folder / "rewards.py").write_text(REWARD)


def _rows(name: str) -> Iterator[dict[str, str]]:
    demo = iter((LETTERS / "train.jsonl").read_text().splitlines())
    dice = random.Random(1)
    for kind, count in TASKS[name].items():
        for _ in range(count):
            if kind == "three":
                yield {**json.loads(next(demo)), "kind": kind}
                continue
            text = "".join(dice.choices(string.ascii_lowercase, k=7 if kind == "seven" else 3))
            yield {"prompt": f"{text}=", "answer": text[::-1], "kind": kind}
