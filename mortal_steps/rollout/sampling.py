"""How tokens are drawn in training, as the configuration says."""

from __future__ import annotations

from mortal_steps.config import RunConfig
from mortal_steps.types import SamplingParams


def sampling_params(config: RunConfig) -> SamplingParams:
    """`[rollout]` as every engine understands it."""
    rollout = config.rollout
    return SamplingParams(
        max_tokens=config.max_tokens,
        temperature=rollout.temperature,
        top_p=rollout.top_p,
        top_k=rollout.top_k,
        min_p=rollout.min_p,
        stop=rollout.stop,
    )
