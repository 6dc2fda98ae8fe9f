"""What `generate` was asked, checked before anything starts."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from mortal_steps.config import RunConfig
from mortal_steps.config.loader import parse_config
from mortal_steps.data.problems import check_prompt
from mortal_steps.errors import ConfigError, DataError
from mortal_steps.types import Prompt, SamplingParams

KEYS: Mapping[str, str] = {
    "max_tokens": "rollout",
    "temperature": "evaluation",  # which may be 0, as here
    "top_p": "rollout",
    "top_k": "rollout",
    "min_p": "rollout",
    "stop": "rollout",
}
"""Options -> the table of the configuration that has them, too, and says what they may be."""


def prompts_of(prompts: Any) -> list[Prompt]:
    """Raises `DataError` for what is no prompt."""
    if not isinstance(prompts, Iterable) or isinstance(prompts, Mapping):
        raise DataError(
            f"generate: prompts is of type {type(prompts).__name__}; give a text, or a list of "
            "texts or of conversations, each a list of chat messages"
        )
    asked = [prompts] if isinstance(prompts, str) else list(prompts)
    for place, prompt in enumerate(asked):
        check_prompt(prompt, f"generate: prompts[{place}]")
    return asked


def sampling_of(
    config: RunConfig, num_generations: int, given: Mapping[str, Any]
) -> SamplingParams:
    """How a run's model is sampled, with what was given instead; raises `ConfigError`."""
    if not isinstance(num_generations, int) or num_generations < 1:
        raise ConfigError(f"generate: num_generations = {num_generations!r}: give 1 or more")
    unknown = [name for name in given if name not in KEYS]
    if unknown:
        raise ConfigError(
            f"generate: {', '.join(unknown)}: there is no such option; there are num_generations, "
            f"{', '.join(KEYS)}"
        )
    values: dict[str, dict[str, Any]] = {}
    for name, value in given.items():
        values.setdefault(KEYS[name], {})[name] = value
    asked = parse_config(values, origin="generate")
    chosen: dict[str, Any] = {"max_tokens": config.max_tokens, "stop": config.rollout.stop}
    chosen |= {name: getattr(getattr(asked, KEYS[name]), name) for name in given}
    return SamplingParams(**chosen)
