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
    """Digest of the episode's tokens before the answers; before `reset`, of no tokens."""
    episode: str
    answers: Sequence[ToolAnswer]
    state: Any = None
    """State of the environment after the answers, if the environment can save it."""
    difference: str | None = None
    """How the answers differ from those before a kill, in words."""


@dataclass(frozen=True, kw_only=True, slots=True)
class SampledRound:
    """What an engine sampled as one batch."""

    batch: str
    """Digest of the inputs of the round, the weights left out."""
    lengths: Sequence[int]
    """Number of tokens of each episode."""
    token_ids: str
    """Tokens of all episodes, one after the other: 64-bit numbers in base64, like `logprobs`."""
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
    """What was sampled and answered in a shard, including by processes that were killed. It is for
    one thread."""

    def __init__(self, folder: Path, weights: str) -> None:
        """`weights` is the digest of the weights with which the shard is sampled."""
        self._files = LineFiles(folder, Answered, sync=True)
        self._known = {each.history: each for _, each in self._files.new()}
        self._turns = folder / f"turns-{weights[:16]}"
        self._rounds = LineFiles(self._turns, SampledRound, sync=True)
        self._sampled = {each.batch: each for _, each in self._rounds.new()}

    def sampled(
        self, batch: str, sample: Callable[[], Sequence[SampledTokens]]
    ) -> Sequence[SampledTokens]:
        """Return the recorded tokens of this batch, or what `sample` returns, once that is
        recorded. Raises `StoreError` if it cannot be written."""
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
        """Record answers to some turns' calls, or to `reset` where a turn has no calls, in one
        write; raise `StoreError` if they cannot be written.

        Answers that are recorded already stay. Return the answers as recorded; where a new one
        differs from the recorded one, the new one with the difference, since it is the
        environment's state now.
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
        """Delete the sampled rounds once the shard is committed, which contains them."""
        self._rounds.close()
        delete_folder(self._turns)

    def close(self) -> None:
        self._files.close()
        self._rounds.close()


def history_of(seed: int, prompt_ids: Sequence[int], token_ids: Sequence[int]) -> str:
    """Return the digest of an episode's tokens so far."""
    digest = hashlib.sha256(f"{seed}/{len(prompt_ids)}/".encode())
    digest.update(array("q", [*prompt_ids, *token_ids]).tobytes())
    return digest.hexdigest()[:32]


def batch_of(histories: Iterable[str], *others: object) -> str:
    """Return the digest of all inputs that decide what a batch samples."""
    return hashlib.sha256("/".join([*map(repr, others), *histories]).encode()).hexdigest()[:32]


def _packed(kind: str, parts: Iterable[Sequence[float]]) -> str:
    return base64.b64encode(array(kind, itertools.chain.from_iterable(parts)).tobytes()).decode()
