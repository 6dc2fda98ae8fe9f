"""Checks, with the model's own tokenizer and before the first step, that the prompts fit the
model."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable, Iterator
from itertools import chain
from typing import Any

from mortal_steps.config import ModelConfig, RunConfig
from mortal_steps.data.problem_files import EVAL_PROBLEMS, find_train_problems, prompts_of
from mortal_steps.errors import ModelError
from mortal_steps.models.hub import is_hub_model, tokenizer_folder
from mortal_steps.rollout.engines.base import context_length
from mortal_steps.rollout.prompt_lengths import PromptLengths, check_fitting, measure_prompts
from mortal_steps.store import RunStore
from mortal_steps.types import Problem, Prompt

THREADS = "TOKENIZERS_PARALLELISM"


def measure(config: RunConfig, prompts: Iterable[Prompt], sampled: int) -> PromptLengths | None:
    """Measure all prompts, rendered as the rollout workers render them; those fit that leave room
    for `sampled` tokens.

    None if the model is on the hub and only downloaded on Modal; `check_at_start` then checks
    there. Raises `ModelError` for a model or a tokenizer that cannot be read, and `DataError`.
    """
    model = config.model
    if model.new is not None:
        from mortal_steps.policy.starting_model.new_model import build_tokenizer

        context = min(model.max_model_len, model.new.max_position_embeddings)
        tokenizer = build_tokenizer(model.new)
    else:
        try:
            folder = tokenizer_folder(model)
        except ModelError:
            if config.data.on_long == "error" and _comes_to_modal(config):
                return None
            raise
        context, tokenizer = _read(folder, model)
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


def check_at_start(store: RunStore, config: RunConfig, tokenizer: Any) -> None:
    """Raise `DataError` for prompts that do not fit, if that could not be checked before the run
    began. `tokenizer` is the model's."""
    if not _comes_to_modal(config):
        return
    from transformers import AutoConfig

    path = tokenizer_folder(config.model)
    shape = AutoConfig.from_pretrained(path, trust_remote_code=config.model.trust_remote_code)
    found = store.find_record(EVAL_PROBLEMS, list[Problem])
    train, held_out = find_train_problems(store), found[1] if found else []
    context = context_length(shape, config.model.max_model_len)
    lengths = measure_prompts(
        chain(prompts_of(train), prompts_of(held_out)),
        tokenizer,
        config.training.template_options,
        context=context,
        fits=context - config.max_tokens,
    )
    check_fitting(train, held_out, lengths)


def _comes_to_modal(config: RunConfig) -> bool:
    return config.compute.backend == "modal" and is_hub_model(config.model)


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
