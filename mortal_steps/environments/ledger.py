"""What was sampled and answered in a shard, kept for when it is killed and sampled again.

    steps/000012/generations-0-calls/begun/20261124T151822-4711-3fa2c19b.jsonl
        {"history": "9f2c...", "episode": "train-7/3", "answers": [{"name": "add", ...}], ...}
    steps/000012/generations-0-calls/begun/turns-<weights>/20261124T151820-4711-81f0c2de.jsonl
        {"batch": "77ab...", "lengths": [12, 40, ...], "token_ids": "<base64>", ...}

A line has the answers to one turn's calls: on the disk before anything is made of them. They follow
a history: a digest of the tokens that the episode had seen and said by then. The same weights and
seeds sample the same tokens again, so a shard that is made again finds each of its answers; one
that is made with other weights finds none of them.

What a known answer is good for depends on the environment. Where nothing is kept between calls
(tools alone, or a class with `_stateless = True`), it is the answer, and nothing is called again.
Where an environment can say what it is at (`_save`), it is brought back there (`_load`). Otherwise
the calls are made again, so that the environment gets where it was, and the answers are compared,
as what `reset` observed always is (see `faults`).

What was sampled in a round is on the disk before anything is made of it, too, and taken from there
instead of sampled again, if the round is the same: the weights, the parameters, and the seeds and
tokens of all its episodes, in their order. No other round depends on whether it was sampled or
taken: engines keep nothing from one `sample` to the next.
"""

import base64
import hashlib
import itertools
import logging
from array import array
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from mortal_steps.environments.messages import ToolAnswer, ToolCall
from mortal_steps.environments.processes.faults import difference_of
from mortal_steps.rollout.engines.base import SampledTokens
from mortal_steps.store.files import delete_folder
from mortal_steps.store.line_files import LineFiles
from mortal_steps.types import FinishReason

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


@dataclass(frozen=True, kw_only=True, slots=True)
class SampledRound:
    """What an engine sampled as one batch."""

    batch: str
    """Digest of what makes it, but for the weights."""
    lengths: Sequence[int]
    """Tokens of each episode."""
    token_ids: str
    """Of all episodes, one behind the other: numbers of 64 bits in base64, as the next."""
    logprobs: str
    finish_reasons: Sequence[FinishReason]

    def turns(self) -> list[SampledTokens]:
        ids = array("q", base64.b64decode(self.token_ids)).tolist()
        logprobs = array("d", base64.b64decode(self.logprobs)).tolist()
        ends = itertools.accumulate(self.lengths)
        return [
            SampledTokens(
                token_ids=ids[end - length : end],
                logprobs=logprobs[end - length : end],
                finish_reason=reason,
            )
            for end, length, reason in zip(ends, self.lengths, self.finish_reasons, strict=True)
        ]


class Ledger:
    """What was sampled and answered in a shard, also by killed processes. For one thread."""

    def __init__(self, folder: Path, weights: str) -> None:
        """`weights` is the digest of those with which the shard is sampled."""
        self._files = LineFiles(folder, Answered, sync=True)
        self._known = {each.history: each for _, each in self._files.new()}
        self._turns = folder / f"turns-{weights[:16]}"
        self._rounds = LineFiles(self._turns, SampledRound, sync=True)
        self._sampled = {each.batch: each for _, each in self._rounds.new()}

    def sampled(
        self, batch: str, sample: Callable[[], Sequence[SampledTokens]]
    ) -> Sequence[SampledTokens]:
        """Return what was sampled as this batch: what is recorded, or what `sample` returns, which
        is recorded then; raises `StoreError` if it cannot be written."""
        known = self._sampled.get(batch)
        if known is not None:
            return known.turns()
        turns = sample()
        self._rounds.add(
            SampledRound(
                batch=batch,
                lengths=[len(each.token_ids) for each in turns],
                token_ids=_packed("q", (each.token_ids for each in turns)),
                logprobs=_packed("d", (each.logprobs for each in turns)),
                finish_reasons=[each.finish_reason for each in turns],
            )
        )
        return turns

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

    def drop_rounds(self) -> None:
        """Delete what was sampled: the shard is committed, and has it."""
        self._rounds.close()
        delete_folder(self._turns)

    def close(self) -> None:
        self._files.close()
        self._rounds.close()


def history_of(seed: int, prompt_ids: Sequence[int], token_ids: Sequence[int]) -> str:
    """Return the digest of what an episode has seen and said."""
    digest = hashlib.sha256(f"{seed}/{len(prompt_ids)}/".encode())
    digest.update(array("q", [*prompt_ids, *token_ids]).tobytes())
    return digest.hexdigest()[:32]


def batch_of(histories: Iterable[str], *others: object) -> str:
    """Return the digest of all that decides what a batch samples."""
    return hashlib.sha256("/".join([*map(repr, others), *histories]).encode()).hexdigest()[:32]


def _packed(kind: str, parts: Iterable[Sequence[float]]) -> str:
    return base64.b64encode(array(kind, itertools.chain.from_iterable(parts)).tobytes()).decode()
