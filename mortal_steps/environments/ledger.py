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
the calls are made again, so that the environment gets where it was, and the answers are compared,
as what `reset` observed always is (see `faults`).
"""

from __future__ import annotations

import hashlib
import logging
from array import array
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from mortal_steps.environments.faults import difference_of
from mortal_steps.environments.messages import ToolAnswer, ToolCall
from mortal_steps.store.line_files import LineFiles

logger = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True, slots=True)
class Answered:
    """The calls of a turn, answered, or the `reset` of an episode."""

    history: str
    """Digest of the episode's tokens before the answers; before `reset`, of none."""
    episode: str
    answers: Sequence[ToolAnswer]
    state: Any = None
    """What the environment was at then, if it can say so."""
    difference: str | None = None
    """What was answered otherwise before a kill, in words."""


class Ledger:
    """What was answered in a shard, by this process and by those that were killed. For one
    thread."""

    def __init__(self, folder: Path) -> None:
        self._files = LineFiles(folder, Answered, sync=True)
        self._known = {each.history: each for _, each in self._files.new()}

    def find(self, history: str) -> Answered | None:
        """Return the recorded answers of a turn's calls, if there are any."""
        return self._known.get(history)

    def note(
        self, answered: Sequence[tuple[Answered, Sequence[ToolCall] | None]]
    ) -> list[Answered]:
        """Record the answers to some turns' calls, or to `reset` where there are none, all at once,
        but for those that are known; raises `StoreError` if they cannot be written.

        Return them as they are recorded: the new ones where they differ from what is known, with
        the difference, since they are what the environment is at now.
        """
        noted = [self._compared(*each) for each in answered]
        new = [each for each in noted if each is not self.find(each.history)]
        if new:
            self._files.add(*new)
            self._known |= {each.history: each for each in new}
        return noted

    def _compared(self, answered: Answered, calls: Sequence[ToolCall] | None) -> Answered:
        known = self.find(answered.history)
        if known is None:
            return answered
        difference = difference_of(None, calls, known.answers, answered.answers)
        if difference is None:
            return known
        logger.warning("episode %s goes on: %s", answered.episode, difference.reason)
        return replace(answered, difference=difference.reason)

    def close(self) -> None:
        """Close its file."""
        self._files.close()


def history_of(seed: int, prompt_ids: Sequence[int], token_ids: Sequence[int]) -> str:
    """Return the digest of what an episode has seen and said."""
    digest = hashlib.sha256(f"{seed}/{len(prompt_ids)}/".encode())
    digest.update(array("q", [*prompt_ids, *token_ids]).tobytes())
    return digest.hexdigest()[:32]
