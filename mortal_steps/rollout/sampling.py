"""The sampling parameters of training, from the configuration."""

from __future__ import annotations

from mortal_steps.config import RunConfig
from mortal_steps.types import SamplingParams


def sampling_params(config: RunConfig) -> SamplingParams:
    """`[rollout]` as `SamplingParams`."""
    rollout = config.rollout
    return SamplingParams(
        max_tokens=config.max_tokens,
        temperature=rollout.temperature,
        top_p=rollout.top_p,
        top_k=rollout.top_k,
        min_p=rollout.min_p,
        stop=rollout.stop,
    )
