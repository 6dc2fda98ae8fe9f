"""Checks, with the model's own tokenizer and before the first step, that the prompts fit the
model."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable, Iterator
from typing import Any

from mortal_steps.config import ModelConfig, RunConfig
from mortal_steps.errors import ModelError
from mortal_steps.models.hub import tokenizer_folder
from mortal_steps.rollout.engines.base import context_length
from mortal_steps.rollout.prompt_lengths import PromptLengths, measure_prompts
from mortal_steps.types import Prompt

THREADS = "TOKENIZERS_PARALLELISM"


def measure(config: RunConfig, prompts: Iterable[Prompt], sampled: int) -> PromptLengths:
    """Measure all prompts, rendered as the rollout workers render them; those fit that leave room
    for `sampled` tokens.

    Raises `ModelError` for a model or a tokenizer that cannot be read, and `DataError`.
    """
    model = config.model
    if model.new is not None:
        from mortal_steps.policy.starting_model.new_model import build_tokenizer

        context = min(model.max_model_len, model.new.max_position_embeddings)
        tokenizer = build_tokenizer(model.new)
    else:
        context, tokenizer = _read(tokenizer_folder(model), model)
    options = config.training.template_options
    fits = context - sampled
    with _many_threads():
        return measure_prompts(prompts, tokenizer, options, context=context, fits=fits)


@contextlib.contextmanager
def _many_threads() -> Iterator[None]:
    """Let tokenizers use one thread per core, which the environment of workers otherwise
    forbids."""
    before = os.environ.get(THREADS)
    os.environ[THREADS] = "true"
    try:
        yield
    finally:
        os.environ.pop(THREADS)
        if before is not None:
            os.environ[THREADS] = before


def _read(folder: str, model: ModelConfig) -> tuple[int, Any]:
    """Context length and tokenizer of a model folder."""
    from transformers import AutoConfig, AutoTokenizer

    name, remote = model.name_or_path, model.trust_remote_code
    try:
        shape = AutoConfig.from_pretrained(folder, trust_remote_code=remote)
        tokenizer = AutoTokenizer.from_pretrained(folder, trust_remote_code=remote)
    except Exception as error:  # tokenizers raises bare Exceptions
        raise ModelError(
            f"model.name_or_path = {name!r}: its config.json or its tokenizer cannot be read: "
            f"{type(error).__name__}: {error}"
        ) from error
    return context_length(shape, model.max_model_len), tokenizer
