"""Counts the tokens of prompts before a run begins, and finds those that do not fit the model.

A dataset may have a million prompts: they are tokenized many at once.
"""

from __future__ import annotations

import itertools
import logging
from array import array
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from mortal_steps.config import DataConfig
from mortal_steps.data.problem_files import select
from mortal_steps.errors import DataError
from mortal_steps.rollout.prompts import check_template, render
from mortal_steps.types import Problem, Prompt

logger = logging.getLogger(__name__)

NAMED = 5
"""Rows that a message names, at most."""

MEASURED_AT_ONCE = 1000
"""Prompts per call of the tokenizer. Its output is dropped before the next call."""


@dataclass(frozen=True, kw_only=True, slots=True)
class PromptLengths:
    """The lengths of prompts, and which of them cannot be used."""

    tokens: Sequence[int]
    """Number of tokens of each prompt, in order; 0 if it is unusable."""
    unusable: Mapping[int, str]
    """Why a prompt is unusable, by its position: it has no tokens, or the chat template raised an
    error."""
    context: int
    """Longest prompt plus completion that the model takes; at most `model.max_model_len`."""
    fits: int = 0
    """Prompts of up to this many tokens fit."""

    @property
    def longest(self) -> int:
        """Number of tokens of the longest prompt."""
        return max(self.tokens, default=0)


def measure_prompts(
    prompts: Iterable[Prompt],
    tokenizer: Any,
    template_options: Mapping[str, Any],
    *,
    context: int,
    fits: int = 0,
) -> PromptLengths:
    """Lengths of all prompts as `tokenize_prompts` would render them, many at once.

    Raises `DataError` for chat messages if the tokenizer has no chat template.
    """
    tokens = array("L")
    unusable: dict[int, str] = {}
    remaining = iter(prompts)
    while chunk := list(itertools.islice(remaining, MEASURED_AT_ONCE)):
        check_template(chunk, tokenizer)
        start = len(tokens)
        try:
            tokens.extend(map(len, render(chunk, tokenizer, template_options)))
            continue
        except Exception:  # noqa: BLE001 - whatever the template raises; asked one by one, below
            pass
        for position, prompt in enumerate(chunk, start):
            try:
                tokens.extend(map(len, render([prompt], tokenizer, template_options)))
            except Exception as error:  # noqa: BLE001 - the boundary to the model's own template
                tokens.append(0)
                unusable[position] = f"the chat template raises {type(error).__name__}: {error}"
    for position, length in enumerate(tokens):
        if not length:
            unusable.setdefault(position, "it has no tokens")
    return PromptLengths(tokens=tokens, unusable=unusable, context=context, fits=fits)


def keep_fitting(
    data: DataConfig,
    train: Sequence[Problem],
    held_out: Sequence[Problem],
    lengths: PromptLengths,
) -> tuple[Sequence[Problem], Sequence[Problem]]:
    """Return the problems that the run has: all of them, or those that fit (`data.on_long`).

    `lengths` are of both, in this order. Raises `DataError` that counts and names the others.
    """
    if data.on_long == "error":
        check_fitting(train, held_out, lengths)
        return train, held_out
    problems = _Both(train, held_out)
    _check_usable(problems, lengths)
    long = _too_long(lengths)
    if not long:
        return train, held_out
    logger.warning("left out: %s (data.on_long)", _described(problems, lengths, long))
    out = set(long)
    kept = array("L", (row for row in range(len(train)) if row not in out))
    count = len(train)
    kept_held_out = array("L", (row for row in range(len(held_out)) if row + count not in out))
    if not kept or len(kept_held_out) < bool(held_out):
        raise DataError(
            "data.on_long = 'drop' leaves no "
            f"{'training' if not kept else 'held-out'} rows: {_room(lengths)}"
        )
    return select(train, kept), select(held_out, kept_held_out)


def check_fitting(
    train: Sequence[Problem],
    held_out: Sequence[Problem],
    lengths: PromptLengths,
) -> None:
    """Raise `DataError` for problems that are unusable or too long."""
    problems = _Both(train, held_out)
    _check_usable(problems, lengths)
    long = _too_long(lengths)
    if long:
        raise DataError(
            f"{_described(problems, lengths, long)}. Leave these rows out with "
            "data.on_long = 'drop', shorten their prompts, or lower rollout.max_tokens (or raise "
            "model.max_model_len, if the model can take more)"
        )


class _Both:
    """Training and held-out problems, one after the other."""

    def __init__(self, train: Sequence[Problem], held_out: Sequence[Problem]) -> None:
        self._parts = train, held_out

    def __len__(self) -> int:
        return sum(map(len, self._parts))

    def __getitem__(self, row: int) -> Problem:
        train, held_out = self._parts
        return train[row] if row < len(train) else held_out[row - len(train)]


def _check_usable(problems: _Both, lengths: PromptLengths) -> None:
    if lengths.unusable:
        first: dict[str, list[str]] = {}
        for row in sorted(lengths.unusable)[:NAMED]:
            first.setdefault(lengths.unusable[row], []).append(problems[row].id)
        reasons = "; ".join(f"{', '.join(ids)}: {reason}" for reason, ids in first.items())
        raise DataError(
            f"{len(lengths.unusable):,} of {len(problems):,} prompts cannot be used: "
            f"{reasons}{_and_more(len(lengths.unusable))}. Repair or remove these rows"
        )


def _too_long(lengths: PromptLengths) -> list[int]:
    return [row for row, tokens in enumerate(lengths.tokens) if tokens > lengths.fits]


def _described(problems: _Both, lengths: PromptLengths, long: Sequence[int]) -> str:
    first = ", ".join(f"{problems[row].id}: {lengths.tokens[row]:,} tokens" for row in long[:NAMED])
    return (
        f"{len(long):,} of {len(problems):,} prompts are too long ({first}{_and_more(len(long))}): "
        f"{_room(lengths)}"
    )


def _room(lengths: PromptLengths) -> str:
    return (
        f"of the model's context of {lengths.context:,} tokens, rollout.max_tokens = "
        f"{lengths.context - lengths.fits:,} leaves {max(0, lengths.fits):,} for a prompt"
    )


def _and_more(count: int) -> str:
    return ", ..." if count > NAMED else ""
