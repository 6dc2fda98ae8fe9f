"""Checks the prompts and options of `generate` before anything is started."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from mortal.trainer.parameters import Prompts
from mortal_steps.config import RunConfig
from mortal_steps.config.loader import parse_config
from mortal_steps.data.values import check_prompt
from mortal_steps.errors import ConfigError, DataError
from mortal_steps.types import Prompt, SamplingParams

KEYS: Mapping[str, str] = {
    "max_tokens": "rollout",
    "temperature": "evaluation",  # may be 0, unlike that of rollouts
    "top_p": "rollout",
    "top_k": "rollout",
    "min_p": "rollout",
    "stop": "rollout",
}
"""Option -> the table of the configuration that has the same key and defines its valid values."""


def prompts_of(prompts: Prompts) -> list[Prompt]:
    """Return the prompts as a list. Raises `DataError` for anything that is not a prompt."""
    if not isinstance(prompts, Iterable) or isinstance(prompts, Mapping):
        raise DataError(
            f"generate: prompts is of type {type(prompts).__name__}; give a text, a list of texts, "
            "or a list of conversations, each of them a list of chat messages"
        )
    asked: list[Prompt] = [prompts] if isinstance(prompts, str) else list(prompts)
    for place, prompt in enumerate(asked):
        check_prompt(prompt, f"generate: prompts[{place}]")
    return asked


def sampling_of(
    config: RunConfig, num_generations: int, given: Mapping[str, Any]
) -> SamplingParams:
    """Return the sampling parameters of a run, with those that were given in their place; None
    leaves one as it is. Raises `ConfigError` for an invalid value."""
    if not isinstance(num_generations, int) or num_generations < 1:
        raise ConfigError(f"generate: num_generations = {num_generations!r}: give 1 or more")
    asked_for = {name: value for name, value in given.items() if value is not None}
    values: dict[str, dict[str, Any]] = {}
    for name, value in asked_for.items():
        values.setdefault(KEYS[name], {})[name] = value
    asked = parse_config(values, origin="generate")
    chosen: dict[str, Any] = {"max_tokens": config.max_tokens, "stop": config.rollout.stop}
    chosen |= {name: getattr(getattr(asked, KEYS[name]), name) for name in asked_for}
    return SamplingParams(**chosen)
