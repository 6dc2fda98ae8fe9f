"""Count the tokens of all prompts before a run begins, and find those that do not fit the model.

A dataset may have a million prompts: they are tokenized many at once.
"""

import contextlib
import functools
import itertools
import logging
import os
from array import array
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from mortal_steps.config import DataConfig, ModelConfig
from mortal_steps.data.problem_files import select
from mortal_steps.errors import DataError
from mortal_steps.models.hub import tokenizer_folder
from mortal_steps.models.model_class import read_model_config
from mortal_steps.policy.starting_model.prompt_tokens import Clock, SpecialTokens
from mortal_steps.rollout.engines.base import context_length
from mortal_steps.rollout.prompts import check_template, render
from mortal_steps.rollout.template_clock import template_clock
from mortal_steps.types import Problem, Prompt

logger = logging.getLogger(__name__)

NAMED = 5
"""Rows that a message names, at most."""

MEASURED_AT_ONCE = 1000
"""Prompts per call of the tokenizer. Its output is dropped before the next call."""

THREADS = "TOKENIZERS_PARALLELISM"

Tools = Sequence[Mapping[str, Any]]
"""JSON schemas of functions."""
NO_TOOLS: Iterable[Tools | None] = itertools.repeat(None)


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
    dated: bool = False
    """Whether the chat template writes today's date into one of them."""
    first: str = ""
    """The first prompt as the model reads it, special tokens included."""
    warnings: tuple[str, ...] = ()
    """What is unusual about special tokens in them."""

    @property
    def longest(self) -> int:
        return max(self.tokens, default=0)


NOT_MEASURED = PromptLengths(tokens=(), unusable={}, context=0)
"""Of rows that are no prompts."""


def measure(
    model: ModelConfig,
    options: Mapping[str, Any],
    prompts: Iterable[Prompt],
    sampled: int,
    tools: Iterable[Tools | None] = NO_TOOLS,
) -> PromptLengths:
    """Measure all prompts with the model's own tokenizer, rendered with the template's `options`,
    and the `tools` that each offers, as the rollout workers render them; those fit that leave room
    for `sampled` tokens.

    Raises `ModelError` for a model or a tokenizer that cannot be read, and `DataError`.
    """
    tokenizer = tokenizer_of(model)
    if model.new is not None:
        context = min(model.max_model_len, model.new.max_position_embeddings)
    else:
        shape = read_model_config(tokenizer_folder(model), model.trust_remote_code)
        context = context_length(shape, model.max_model_len)
    with _many_threads():
        return measure_prompts(
            *(prompts, tokenizer, options), tools=tools, context=context, fits=context - sampled
        )


def tokenizer_of(model: ModelConfig) -> Any:
    """Return the model's tokenizer, whether the model is there or is yet to be made. Raises
    `ModelError`."""
    from mortal_steps.policy.model_files.tokenizer import load_tokenizer
    from mortal_steps.policy.starting_model.new_model import build_tokenizer

    if model.new is not None:
        return build_tokenizer(model.new)
    return load_tokenizer(tokenizer_folder(model), model.trust_remote_code)


@contextlib.contextmanager
def _many_threads() -> Iterator[None]:
    """Let tokenizers use a thread per core, which workers otherwise forbid."""
    before = os.environ.get(THREADS)
    os.environ[THREADS] = "true"
    try:
        yield
    finally:
        os.environ.pop(THREADS)
        if before is not None:
            os.environ[THREADS] = before


def measure_prompts(
    prompts: Iterable[Prompt],
    tokenizer: Any,
    template_options: Mapping[str, Any],
    *,
    tools: Iterable[Tools | None] = NO_TOOLS,
    context: int,
    fits: int = 0,
) -> PromptLengths:
    """Return the lengths of all prompts as rollout workers render them. Raises `DataError` for
    chats if the tokenizer has no template."""
    tokens = array("L")
    unusable: dict[int, str] = {}
    ends, clock, dated = SpecialTokens(tokenizer), Clock(), False
    remaining = zip(prompts, tools, strict=False)  # of which there may be no end
    while chunk := list(itertools.islice(remaining, MEASURED_AT_ONCE)):
        check_template([prompt for prompt, _ in chunk], tokenizer)
        start = len(tokens)
        try:
            rendered = _rendered(chunk, tokenizer, template_options, clock)
        except Exception:  # noqa: BLE001 - whatever the template raises; asked one by one, below
            rendered = []
            for position, prompt in enumerate(chunk, start):
                try:
                    rendered += _rendered([prompt], tokenizer, template_options, clock)
                except Exception as error:  # noqa: BLE001 - the boundary to the model's template
                    rendered.append([])
                    unusable[position] = f"the chat template raises {type(error).__name__}: {error}"
        tokens.extend(map(len, rendered))
        ends.look_at((prompt for prompt, _ in chunk), rendered)
        if not dated and clock.take():
            read = [row for row, ids in zip(chunk, rendered, strict=True) if ids]
            dated = _are_dated(read, tokenizer, template_options)
    for position, length in enumerate(tokens):
        if not length:
            unusable.setdefault(position, "it has no tokens")
    return PromptLengths(
        tokens=tokens,
        unusable=unusable,
        context=context,
        fits=fits,
        dated=dated,
        first=tokenizer.decode(ends.first),
        warnings=tuple(ends.warnings()),
    )


def _rendered(
    chunk: Sequence[tuple[Prompt, Tools | None]],
    tokenizer: Any,
    options: Mapping[str, Any],
    clock: Callable[[str], str],
) -> list[list[int]]:
    """Return the tokens of each prompt; those that offer the same tools are rendered at once."""
    found: list[list[int]] = [[] for _ in chunk]
    for tools in {id(tools): tools for _, tools in chunk}.values():
        rows = [row for row, (_, its) in enumerate(chunk) if its is tools]
        own = options if tools is None else {**options, "tools": list(tools) or None}
        with template_clock(clock):
            rendered = render([chunk[row][0] for row in rows], tokenizer, own)
        for row, ids in zip(rows, rendered, strict=True):
            found[row] = ids
    return found


def _are_dated(
    chunk: Sequence[tuple[Prompt, Tools | None]], tokenizer: Any, options: Mapping[str, Any]
) -> bool:
    """Return whether one of the prompts is rendered differently on another day."""
    days = [functools.partial(str.__add__, day) for day in ("1", "2")]
    first, second = (_rendered(chunk, tokenizer, options, day) for day in days)
    return first != second


def keep_fitting(
    data: DataConfig,
    train: Sequence[Problem],
    held_out: Sequence[Problem],
    lengths: PromptLengths,
) -> tuple[Sequence[Problem], Sequence[Problem]]:
    """Return all problems, or those that fit (`data.on_long`), by `lengths` of both in order.
    Raises `DataError` that counts and names the others."""
    count = len(train)

    def id_of(row: int) -> str:
        return (train[row] if row < count else held_out[row - count]).id

    _check_usable(lengths, id_of)
    long = [row for row, tokens in enumerate(lengths.tokens) if tokens > lengths.fits]
    if not long:
        return train, held_out
    first = ", ".join(f"{id_of(row)}: {lengths.tokens[row]:,} tokens" for row in long[:NAMED])
    room = (
        f"of the model's context of {lengths.context:,} tokens, rollout.max_tokens = "
        f"{lengths.context - lengths.fits:,} leaves {max(0, lengths.fits):,} for a prompt"
    )
    found = (
        f"{len(long):,} of {len(lengths.tokens):,} prompts are too long "
        f"({first}{_and_more(len(long))}): {room}"
    )
    if data.on_long == "error":
        raise DataError(
            f"{found}. Leave these rows out with data.on_long = 'drop', shorten their prompts, or "
            "lower rollout.max_tokens (or raise model.max_model_len, if the model can take more)"
        )
    logger.warning("left out: %s (data.on_long)", found)
    out = set(long)
    kept = array("L", (row for row in range(count) if row not in out))
    kept_held_out = array("L", (row for row in range(len(held_out)) if row + count not in out))
    if not kept or len(kept_held_out) < bool(held_out):
        raise DataError(
            f"data.on_long = 'drop' leaves no {'training' if not kept else 'held-out'} rows: {room}"
        )
    return select(train, kept), select(held_out, kept_held_out)


def _check_usable(lengths: PromptLengths, id_of: Callable[[int], str]) -> None:
    if lengths.unusable:
        first: dict[str, list[str]] = {}
        for row in sorted(lengths.unusable)[:NAMED]:
            first.setdefault(lengths.unusable[row], []).append(id_of(row))
        reasons = "; ".join(f"{', '.join(ids)}: {reason}" for reason, ids in first.items())
        raise DataError(
            f"{len(lengths.unusable):,} of {len(lengths.tokens):,} prompts cannot be used: "
            f"{reasons}{_and_more(len(lengths.unusable))}. Repair or remove these rows"
        )


def _and_more(count: int) -> str:
    return ", ..." if count > NAMED else ""
