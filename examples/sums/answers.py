"""Show what the model of a run of `smollm.toml` answers to the held-out sums, before and after.

    python -m examples.sums.answers RUN [--runs-dir runs] [--rows 12]

The run itself cuts answers off after 12 tokens, so that a model which rambles has no chance there:
here both models may say 64, greedily. Behind each share is its 95 % interval (Wilson's).
"""

from __future__ import annotations

import argparse
import json
import math
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import mortal
from examples.sums import rewards

CONFIG = Path("deployments/configs/smollm.toml")
HELD_OUT = Path("examples/sums/eval.jsonl")
TOKENS = 64
WIDTH = 44
"""Characters of an answer in the table."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Answer:
    """What a model said to one problem."""

    text: str
    tokens: int
    ended: bool
    """Whether the model ended it by itself."""
    correct: bool
    ends_there: bool


def ask(model: Path, problems: Sequence[dict[str, str]]) -> list[Answer]:
    """The model's answers to the problems of `HELD_OUT`, by `mortal test-rollout`."""
    settings = {
        "model.name_or_path": model,
        "data.source": HELD_OUT,
        "rollout.max_tokens": TOKENS,
        "training.max_completion_length": TOKENS,
        "rollout.top_k": 1,  # greedy
    }
    overrides = [word for key, value in settings.items() for word in ("--set", f"{key}={value}")]
    asked = ["test-rollout", CONFIG, "--prompts", len(problems), "--json", *overrides]
    command = [sys.executable, "-m", "mortal", *map(str, asked)]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE)
    said = json.loads(done.stdout)["completions"]
    assert [one["prompt"] for one in said] == [problem["prompt"] for problem in problems]
    chats = [[{"role": "assistant", "content": one["completion"]}] for one in said]
    right = [problem["answer"] for problem in problems]
    scored = zip(said, rewards.correct(chats, right), rewards.ends_there(chats, right), strict=True)
    return [
        Answer(
            text=one["completion"],
            tokens=one["tokens"],
            ended=one["finish_reason"] == "stop",
            correct=bool(correct),
            ends_there=bool(ends_there),
        )
        for one, correct, ends_there in scored
    ]


def share(hits: Sequence[bool]) -> str:
    """Such as `34 of 44: 0.773 (0.630 to 0.872)`."""
    low, high = wilson(sum(hits), len(hits))
    return f"{sum(hits)} of {len(hits)}: {sum(hits) / len(hits):.3f} ({low:.3f} to {high:.3f})"


def wilson(hits: int, trials: int, z: float = 1.96) -> tuple[float, float]:
    """The interval of a share by Wilson (1927); with z = 1.96 it holds the true share 95 % of the
    time."""
    found, weight = hits / trials, z * z / trials
    middle = found + weight / 2
    half = z * math.sqrt(found * (1 - found) / trials + weight / (4 * trials))
    return (middle - half) / (1 + weight), (middle + half) / (1 + weight)


def shortened(text: str) -> str:
    """An answer on one line, without its middle if it is long: the number is at the end."""
    line = " ".join(text.split())
    half = (WIDTH - 5) // 2
    return line if len(line) <= WIDTH else f"{line[:half]} ... {line[-half:]}"


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("run", help="a finished run of deployments/configs/smollm.toml")
    parser.add_argument("--runs-dir", type=Path, default=Path("runs"))
    parser.add_argument("--rows", type=int, default=12, help="answers to show")
    args = parser.parse_args()

    run = mortal.open_run(args.run, args.runs_dir)
    problems = [json.loads(line) for line in HELD_OUT.read_text(encoding="utf-8").splitlines()]
    print(f"asking the model of before and after training the {len(problems)} held-out sums ...")
    before = ask(Path(run.config.model.name_or_path), problems)
    after = ask(run.path / "final", problems)
    print(f"\nheld-out sum   {'before':<{WIDTH}}   right   {'after':<{WIDTH}}   right")
    for problem, first, last in list(zip(problems, before, after, strict=True))[: args.rows]:
        asked = problem["prompt"][-1]["content"].removeprefix("What is ").rstrip("?")
        cells = [
            f"{shortened(one.text):<{WIDTH}}   {'yes' if one.correct else 'no':<5}"
            for one in (first, last)
        ]
        print(f"{asked:<12}   {'   '.join(cells)}".rstrip())
    print(f"\n{'greedy, up to 64 tokens':<27}   {'before':<33}   after")
    for said, name in {
        "the last number is right": "correct",
        "and the answer ends with it": "ends_there",
        "the model ended by itself": "ended",
    }.items():
        shares = [share([getattr(one, name) for one in answers]) for answers in (before, after)]
        print(f"{said:<27}   {shares[0]:<33}   {shares[1]}")
    means = [sum(one.tokens for one in answers) / len(answers) for answers in (before, after)]
    print(f"{'tokens of an answer, mean':<27}   {means[0]:<33.1f}   {means[1]:.1f}")


if __name__ == "__main__":
    main()
