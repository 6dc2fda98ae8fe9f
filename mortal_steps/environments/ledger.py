"""The answers of tools in a shard, kept so that a killed shard that is sampled again has them.

    steps/000012/generations-0-calls/begun/20261124T151822-4711-3fa2c19b.jsonl
        {"history": "9f2c...", "episode": "train-7/3", "answers": [{"name": "add", ...}], ...}

A line has the answers to one turn's calls: on the disk before anything is made of them. They follow
a history: a digest of the tokens that the episode had seen and said by then. The same weights and
seeds sample the same tokens again, so a shard that is made again finds each of its answers; one
that is made with other weights finds none of them.

What a known answer is good for depends on the environment. Where nothing is kept between calls
(tools alone, or a class with `_stateless = True`), it is the answer, and nothing is called again.
Where an environment can say what it is at (`_save`), it is brought back there (`_load`). Otherwise
the calls are made again, so that the environment gets where it was, and the answers are compared:
an environment that is no function of its row, its seed and its calls is found out.
"""

from __future__ import annotations

import hashlib
import logging
from array import array
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mortal_steps.environments.messages import ToolAnswer
from mortal_steps.store.line_files import LineFiles

logger = logging.getLogger(__name__)

SHOWN = 80
"""Characters of an answer in a message."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Answered:
    """The calls of a turn, answered."""

    history: str
    """Digest of the episode's tokens before the answers."""
    episode: str
    answers: Sequence[ToolAnswer]
    state: Any = None
    """What the environment was at then, if it can say so."""


class Ledger:
    """What was answered in a shard, by this process and by those that were killed. For one
    thread."""

    def __init__(self, folder: Path) -> None:
        self._files = LineFiles(folder, Answered, sync=True)
        self._known = {each.history: each for _, each in self._files.new()}

    def find(self, history: str) -> Answered | None:
        """Return the recorded answers of a turn's calls, if there are any."""
        return self._known.get(history)

    def note(self, answered: Sequence[Answered]) -> None:
        """Record the answers of some turns' calls, all at once, but for those that are known;
        raises `StoreError` if they cannot be written. Where answers differ from what is known, the
        new ones are recorded: they are what the environment is at now."""
        new = [each for each in answered if self._is_news(each)]
        if new:
            self._files.add(*new)
            self._known |= {each.history: each for each in new}

    def _is_news(self, answered: Answered) -> bool:
        known = self.find(answered.history)
        if known is None:
            return True
        different = _difference(known.answers, answered.answers)
        if different is None:
            return False
        logger.warning(
            "episode %s: %s; the episode goes on with the new answer, so its run does not end with "
            "the bits of one that was never killed. `mortal test-environment` finds what is not a "
            "function of the row, the seed and the calls",
            answered.episode,
            different,
        )
        return True

    def close(self) -> None:
        """Close its file."""
        self._files.close()


def history_of(seed: int, prompt_ids: Sequence[int], token_ids: Sequence[int]) -> str:
    """Return the digest of what an episode has seen and said."""
    digest = hashlib.sha256(f"{seed}/{len(prompt_ids)}/".encode())
    digest.update(array("q", [*prompt_ids, *token_ids]).tobytes())
    return digest.hexdigest()[:32]


def _difference(known: Sequence[ToolAnswer], answers: Sequence[ToolAnswer]) -> str | None:
    """Return the first call whose answer is another one, in words."""
    for before, now in zip(known, answers, strict=True):
        if (before.name, before.content, before.is_error) != (now.name, now.content, now.is_error):
            return (
                f"{now.name} answered {str(before.content)[:SHOWN]!r} before a kill and "
                f"{str(now.content)[:SHOWN]!r} when it was called again"
            )
    return None
