"""The answers of tools in a shard, kept so that a killed shard that is sampled again has them.

    steps/000012/calls-0/20261124T151822-4711-3fa2c19b.jsonl
        {"history": "9f2c...", "call_id": "train-7/3/0", "name": "add", "content": "total 6", ...}

A line is one answer: on the disk before anything is made of it. It stands for a call after a
history: a digest of the tokens that the model had seen and said by then. The same weights and seeds
sample the same tokens again, so a shard that is made again finds each of its answers; one that is
made with other weights finds none of them.
"""

from __future__ import annotations

import hashlib
from array import array
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mortal_steps.environments.messages import ToolAnswer
from mortal_steps.store.line_files import LineFiles


@dataclass(frozen=True, kw_only=True, slots=True)
class Answered:
    """A call that was answered."""

    history: str
    """Digest of the episode's tokens before the answer."""
    call_id: str
    name: str
    content: Any
    is_error: bool
    state: Any = None
    """Of the environment after the turn's last call, where it can save it."""


class Ledger:
    """What was answered in a shard, by this process and by those that were killed."""

    def __init__(self, folder: Path) -> None:
        self._files = LineFiles(folder, Answered, sync=True)
        self._known = {(each.history, each.call_id): each for _, each in self._files.new()}

    def find(self, history: str, call_id: str) -> Answered | None:
        """Return the answer that was recorded for a call, if one was."""
        return self._known.get((history, call_id))

    def add(self, answered: Answered) -> None:
        """Record an answer; raises `StoreError` if it cannot be written."""
        self._files.add(answered)
        self._known[answered.history, answered.call_id] = answered

    def close(self) -> None:
        """Close its file."""
        self._files.close()

    def __len__(self) -> int:
        return len(self._known)


def history_of(seed: int, prompt_ids: Sequence[int], token_ids: Sequence[int]) -> str:
    """Return the digest of what an episode has seen and said."""
    digest = hashlib.sha256(f"{seed}/{len(prompt_ids)}/".encode())
    digest.update(array("q", [*prompt_ids, *token_ids]).tobytes())
    return digest.hexdigest()[:32]


def answer_of(answered: Answered) -> ToolAnswer:
    """Return a recorded answer as the tool gave it."""
    return ToolAnswer(name=answered.name, content=answered.content, is_error=answered.is_error)


def differs(answered: Answered, answer: ToolAnswer) -> bool:
    """Return whether a call that was made again had another answer."""
    found: Mapping[str, Any] = {"content": answer.content, "is_error": answer.is_error}
    return found != {"content": answered.content, "is_error": answered.is_error}
