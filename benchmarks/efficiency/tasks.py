"""Datasets of letters and words to reverse and of sums, of which more or less is of use."""

import json
import random
import string
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.jobs import ROOT

LETTERS = ROOT / "examples/letters"
SUMS = ROOT / "examples/sums"
HELD_OUT_WORDS = 300


@dataclass(frozen=True, kw_only=True)
class Task:
    config: str = "demo.toml"
    """In deployments/configs; the dataset, the rewards and the evaluation are replaced."""
    goal: float = 0.8
    """Share of held-out problems that is to be right."""
    every: int = 10
    """Steps between two evaluations."""
    kinds: Mapping[str, int] = field(default_factory=dict)
    """Rows of each kind: `three` letters, as in the demo; `anything`, for which every answer is
    right; `seven` letters, which the policy never gets right. Of sums, `small` ones, as in the
    example, and those of two numbers of `6` and `9` digits."""


TASKS = {
    "letters": Task(kinds={"three": 1800}),
    "mixture": Task(kinds={"three": 600, "anything": 600, "seven": 600}),
    "useless": Task(kinds={"three": 400, "anything": 200, "seven": 1400}),
    "spelling": Task(config="spell_backward.toml", goal=0.5),
    "sums": Task(config="smollm.toml", goal=0.5, every=5, kinds={"small": 100, "6": 100, "9": 100}),
}

REWARD = """
def right(completions, answer, kind=None, **kwargs):
    kinds = kind or ["three"] * len(answer)
    pairs = zip(completions, answer, kinds)
    return [float(of == "anything" or text.strip() == wanted) for text, wanted, of in pairs]
"""
REWARD_OF_SUMS = """
import re

def right(completions, answer, **kwargs):
    numbers = [re.findall(r"\\d+", each[0]["content"])[-1:] for each in completions]
    return [float(last == [wanted]) for last, wanted in zip(numbers, answer)]
"""


def write_task(name: str, folder: Path) -> None:
    """Write the rows of a task, the held-out ones and the reward function into a folder."""
    kinds, reward = TASKS[name].kinds, REWARD
    if name == "spelling":
        rows, held_out = list(_words(6000, seed=0)), list(_words(HELD_OUT_WORDS, seed=6000))
        known = {row["answer"] for row in held_out}
        rows = [row for row in rows if row["answer"] not in known]
    elif name == "sums":
        rows, held_out, reward = _shuffled(_sums(kinds)), _read(SUMS / "eval.jsonl"), REWARD_OF_SUMS
    else:
        rows, held_out = _shuffled(_rows(kinds)), _read(LETTERS / "eval.jsonl")
    for file, each in {"train": rows, "eval": held_out}.items():
        (folder / f"{file}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in each))
    (folder / "rewards.py").write_text(reward)


def _read(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def _shuffled(rows: Iterator[dict[str, Any]]) -> list[dict[str, Any]]:
    mixed = list(rows)
    random.Random(7).shuffle(mixed)
    return mixed


def _rows(kinds: Mapping[str, int]) -> Iterator[dict[str, Any]]:
    demo = iter(_read(LETTERS / "train.jsonl"))
    dice = random.Random(1)
    for kind, count in kinds.items():
        for _ in range(count):
            if kind == "three":
                yield {**next(demo), "kind": kind}
                continue
            text = "".join(dice.choices(string.ascii_lowercase, k=7 if kind == "seven" else 3))
            yield {"prompt": f"{text}=", "answer": text[::-1], "kind": kind}


def _words(number: int, *, seed: int) -> Iterator[dict[str, Any]]:
    """Yield rows of reasoning_gym's spell_backward, whose kind is the length of the word."""
    import reasoning_gym

    sizes = {"min_word_len": 3, "max_word_len": 4}
    for entry in reasoning_gym.create_dataset("spell_backward", size=number, seed=seed, **sizes):
        answer = entry["answer"]
        yield {"prompt": entry["question"], "answer": answer, "kind": str(len(answer))}


def _sums(kinds: Mapping[str, int]) -> Iterator[dict[str, Any]]:
    small, dice = _read(SUMS / "train.jsonl"), random.Random(1)
    yield from ({**row, "kind": "small"} for row in small[: kinds["small"]])
    for digits in sorted(kinds.keys() - {"small"}):
        for _ in range(kinds[digits]):
            one, other = (dice.randrange(10 ** (int(digits) - 1), 10 ** int(digits)) for _ in "ab")
            asked = {"role": "user", "content": f"What is {one} + {other}?"}
            prompt = [*small[0]["prompt"][:-1], asked]
            yield {"prompt": prompt, "answer": str(one + other), "kind": digits}
