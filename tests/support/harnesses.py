"""A project whose evaluations have sets of their own, and harnesses."""

import json

from tests.support.project import write_project

HARNESS = '''
import json
import os
import urllib.request
from pathlib import Path

from mortal.extend import Harness


class Echo(Harness):
    """Asks for letters, and scores how many of its answers hold them."""

    letters: str = "abcd"
    fails: str = ""

    def check(self):
        if not self.letters:
            raise ValueError("letters is empty")

    def evaluate(self, policy):
        Path("begun.txt").open("a").write(f"{policy.step}\\n")
        if self.fails == "raises":
            raise RuntimeError("the benchmark is broken")
        if self.fails == "hangs":
            import time
            time.sleep(60)
        if self.fails == "single":
            return 0.5
        if self.fails == "exits":
            os._exit(3)
        asked = {"model": policy.model, "prompt": [f"{each}=" for each in self.letters]}
        asked |= {"max_tokens": 4, "temperature": 1.0}
        answer = ask(policy, asked)
        texts = [choice["text"] for choice in answer["choices"]]
        if Path("kill.txt").exists():
            Path("kill.txt").unlink()
            os.kill(os.getppid(), 9) if os.environ.get("KILLS") else os.kill(os.getpid(), 9)
        scores = {
            letter: {"has": float(letter in text), "length": len(text)}
            for letter, text in zip(self.letters, texts)
        }
        return float("nan") if self.fails == "number" else scores


def ask(policy, body):
    request = urllib.request.Request(
        f"{policy.base_url}/completions",
        json.dumps(body).encode(),
        {"Content-Type": "application/json"},
    )
    with urllib.request.urlopen(request) as answer:
        return json.load(answer)
'''
REWARDS = '''
def lengths(completions, answer, **kwargs):
    """How much of the answer's length a completion has, at most 1."""
    return [min(1.0, len(text) / len(right)) for text, right in zip(completions, answer)]


def first(completions, wanted, **kwargs):
    return [float(text[:1] == letter) for text, letter in zip(completions, wanted)]
'''
SETS = {
    "easy": [{"prompt": f"{letter}=", "answer": letter} for letter in "ab"],
    "hard": [{"prompt": f"{letter}=", "answer": letter * 3} for letter in "cde"],
    "other": [{"prompt": f"{letter}=", "wanted": letter} for letter in "abcd"],
}
SETTINGS = (
    "training.max_steps=2",
    "checkpoints.save_steps=1",
    "evaluation.eval_steps=1",
    "data.eval_samples=0",
    "rollout.num_shards=2",
    *(f"data.eval_sets.{name}={name}.jsonl" for name in SETS),
    "evaluation.sets.other.functions=others.py:first",
    "evaluation.sets.other.num_generations=3",
    "evaluation.sets.other.temperature=1.0",
    "evaluation.sets.other.max_tokens=2",
    "evaluation.sets.other.num_problems=3",
)
ECHO = ("evaluation.sets.echo.type=bench.py:Echo", "evaluation.sets.echo.metric=has")


def write_sets(folder):
    """Return the tiny project's folder with three sets, rewards and a harness."""
    write_project(folder)
    (folder / "others.py").write_text(REWARDS)
    (folder / "bench.py").write_text(HARNESS)
    for name, rows in SETS.items():
        (folder / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return folder
