"""Counts the tokens of prompts: exactly, or an upper bound if the bound proves that the prompt
fits.

A dataset may have a million prompts. Those that fit by a bound (token_bounds.py) are not tokenized;
for the others, `tokenizers` counts the tokens without making lists of them.
"""

from __future__ import annotations

import inspect
import itertools
from array import array
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from mortal_steps.rollout.prompts import check_template, render
from mortal_steps.rollout.token_bounds import most_tokens
from mortal_steps.types import Prompt

MEASURED_AT_ONCE = 1000
"""Prompts per call of the tokenizer. Its output is dropped before the next call."""
OF_TEMPLATES = {"tools", "documents", "chat_template", "continue_final_message"}
"""Parameters of `apply_chat_template` that decide what is rendered, not how it is tokenized."""


@dataclass(frozen=True, kw_only=True, slots=True)
class PromptLengths:
    """The lengths of prompts, and which of them cannot be used."""

    tokens: Sequence[int]
    """Number of tokens of each prompt, in order; 0 if it is unusable. A number up to `fits` may be
    too high."""
    unusable: Mapping[int, str]
    """Why a prompt is unusable, by its position: it has no tokens, or the chat template raised an
    error."""
    context: int
    """Longest prompt plus completion that the model takes; at most `model.max_model_len`."""
    fits: int = 0
    """Prompts of up to this many tokens fit."""
    longest: int = 0
    """Exact number of tokens of the prompt that has the most of `tokens`."""


def measure_prompts(
    prompts: Iterable[Prompt],
    tokenizer: Any,
    template_options: Mapping[str, Any],
    *,
    context: int,
    fits: int = 0,
) -> PromptLengths:
    """Lengths of all prompts as `tokenize_prompts` would render them, many at once; exact for those
    that have more than `fits` tokens.

    Raises `DataError` for chat messages if the tokenizer has no chat template.
    """
    counter = _Counter(tokenizer, template_options, fits)
    tokens = array("L")
    unusable: dict[int, str] = {}
    longest: tuple[int, Prompt] = (0, "")
    remaining = iter(prompts)
    while chunk := list(itertools.islice(remaining, MEASURED_AT_ONCE)):
        check_template(chunk, tokenizer)
        start = len(tokens)
        try:
            tokens.extend(counts := counter.count(chunk))
            longest = max(longest, max(zip(counts, chunk, strict=True), key=_most), key=_most)
            continue
        except Exception:  # noqa: BLE001 - whatever the template raises; asked one by one, below
            pass
        for position, prompt in enumerate(chunk, start):
            try:
                tokens.extend(counter.count([prompt]))
            except Exception as error:  # noqa: BLE001 - the boundary to the model's own template
                tokens.append(0)
                unusable[position] = f"the chat template raises {type(error).__name__}: {error}"
    for position, length in enumerate(tokens):
        if not length:
            unusable.setdefault(position, "it has no tokens")
    return PromptLengths(
        tokens=tokens,
        unusable=unusable,
        context=context,
        fits=fits,
        longest=len(render([longest[1]], tokenizer, template_options)[0]) if longest[0] else 0,
    )


def _most(counted: tuple[int, Prompt]) -> int:
    return counted[0]


class _Counter:
    """Counts the tokens of prompts."""

    def __init__(self, tokenizer: Any, template_options: Mapping[str, Any], fits: int) -> None:
        self._tokenizer = tokenizer
        self._options = template_options
        self._fits = fits
        self._is_known = _is_known(tokenizer, template_options)
        self._most = most_tokens(tokenizer.backend_tokenizer) if self._is_known else None

    def count(self, prompts: Sequence[Prompt]) -> list[int]:
        """Number of tokens of each prompt; raises what rendering a prompt raises."""
        if not self._is_known or len({isinstance(prompt, str) for prompt in prompts}) > 1:
            return list(map(len, render(prompts, self._tokenizer, self._options)))
        if isinstance(prompts[0], str):
            return self._count_texts([str(prompt) for prompt in prompts], special=True)
        rendered = self._tokenizer.apply_chat_template(
            list(prompts), add_generation_prompt=True, tokenize=False, **self._options
        )
        return self._count_texts(rendered, special=False)

    def _count_texts(self, texts: list[str], *, special: bool) -> list[int]:
        """`special`: with the tokens that the tokenizer puts around a text."""
        if self._most is None:
            return self._count_exactly(texts, special)
        around = self._tokenizer.num_special_tokens_to_add() if special else 0
        counts = [self._most(text) + around for text in texts]
        long = [row for row, count in enumerate(counts) if count > self._fits]
        exact = self._count_exactly([texts[row] for row in long], special)
        for row, count in zip(long, exact, strict=True):
            counts[row] = count
        return counts

    def _count_exactly(self, texts: list[str], special: bool) -> list[int]:
        if not texts:
            return []
        backend = self._tokenizer.backend_tokenizer
        # As a call of the tokenizer sets it.
        backend.no_truncation()
        backend.no_padding()
        backend.encode_special_tokens = self._tokenizer.split_special_tokens
        return list(map(len, backend.encode_batch_fast(texts, add_special_tokens=special)))


def _is_known(tokenizer: Any, template_options: Mapping[str, Any]) -> bool:
    """Whether the tokenizer does nothing but what transformers' class around a
    `tokenizers.Tokenizer` does, and the options are for the chat template alone."""
    from transformers import PreTrainedTokenizerFast

    kind = type(tokenizer)
    own = ("__call__", "_encode_plus", "set_truncation_and_padding", "apply_chat_template")
    if not isinstance(tokenizer, PreTrainedTokenizerFast) or any(
        getattr(kind, name) is not getattr(PreTrainedTokenizerFast, name) for name in own
    ):
        return False
    parameters = inspect.signature(kind.apply_chat_template).parameters
    return not template_options.keys() & (parameters.keys() - OF_TEMPLATES)
