"""Write the rows of the agent's task: safes to open, and dialogues to begin with.

    python -m examples.agent.rows --out examples/agent

    {"prompt": [{"role": "user", "content": "Open safe kfq"}], "safe": "kfq", "code": "wmt",
     "dialogue": [{"role": "assistant", "content": "⟨call⟩open {\"code\": \"aaa\"}⟨end⟩"},
                  {"role": "tool", "content": "shut"}, {"role": "assistant", "content": "done"}]}

The column `dialogue` is for a model to begin with: it learns how calls are written, from dialogues
that mostly leave the safe shut. Most of them try the code that safes have when they are delivered,
at once or although they have been told the right one. What opens a safe is left to GRPO.
"""

from __future__ import annotations

import argparse
import json
import random
import string
from pathlib import Path
from typing import Any

ASKS, USES_ANSWER = 0.6, 0.3
"""Shares of the dialogues that ask for the code; of these, that try what they are told."""
DELIVERED = "aaa"
"""What the others try."""


def make_rows(*, count: int, seed: int) -> list[dict[str, Any]]:
    """`count` different safes, drawn from the seed."""
    draw = random.Random(seed)
    safes: dict[str, None] = {}
    while len(safes) < count:
        safes[_letters(draw)] = None
    return [_row(safe, _letters(draw), draw) for safe in safes]


def _row(safe: str, code: str, draw: random.Random) -> dict[str, Any]:
    return {
        "prompt": [{"role": "user", "content": f"Open safe {safe}"}],
        "safe": safe,
        "code": code,
        "dialogue": _dialogue(safe, code, draw),
    }


def _dialogue(safe: str, code: str, draw: random.Random) -> list[dict[str, str]]:
    """What follows the prompt."""
    asks, uses_answer = draw.random() < ASKS, draw.random() < USES_ANSWER
    tried = code if asks and uses_answer else DELIVERED
    return [
        *([_call("ask", safe=safe), {"role": "tool", "content": code}] if asks else []),
        _call("open", code=tried),
        {"role": "tool", "content": "open" if tried == code else "shut"},
        {"role": "assistant", "content": "done"},
    ]


def _call(name: str, **arguments: str) -> dict[str, str]:
    """Return a call as the model's own chat template writes it."""
    text = f"⟨call⟩{name} {json.dumps(arguments)}⟨end⟩"
    return {"role": "assistant", "content": text}


def _letters(draw: random.Random) -> str:
    return "".join(draw.choices(string.ascii_lowercase, k=3))


def write_rows(path: Path, rows: list[dict[str, Any]]) -> None:
    """One JSON object per line."""
    lines = (json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
    path.write_text("".join(lines), encoding="utf-8")


def main() -> None:
    parser = argparse.ArgumentParser(
        description="Write safes to open: train.jsonl and eval.jsonl, which share none."
    )
    parser.add_argument("--out", type=Path, default=Path("agent"), help="folder to write to")
    parser.add_argument("--train", type=int, default=2000, help="rows of train.jsonl")
    parser.add_argument("--eval", type=int, default=200, help="rows of eval.jsonl")
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()

    if not (args.train > 0 < args.eval and args.train + args.eval <= 26**3):
        parser.error(f"--train and --eval must be at least 1, and {26**3} together at most")
    rows = make_rows(count=args.train + args.eval, seed=args.seed)
    args.out.mkdir(parents=True, exist_ok=True)
    write_rows(args.out / "train.jsonl", rows[: args.train])
    write_rows(args.out / "eval.jsonl", rows[args.train :])
    print(f"{args.train} safes to train on and {args.eval} held out, in {args.out}")


if __name__ == "__main__":
    main()
