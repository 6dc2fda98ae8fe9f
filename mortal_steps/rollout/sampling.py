"""Sampling parameters, from the configuration."""

from __future__ import annotations

from mortal_steps.config import RolloutConfig
from mortal_steps.types import SamplingParams


def sampling_params(rollout: RolloutConfig, max_tokens: int) -> SamplingParams:
    """`[rollout]` as `SamplingParams`."""
    return SamplingParams(
        max_tokens=max_tokens,
        temperature=rollout.temperature,
        top_p=rollout.top_p,
        top_k=rollout.top_k,
        min_p=rollout.min_p,
        stop=rollout.stop,
    )


def eval_sampling(rollout: RolloutConfig, max_tokens: int, temperature: float) -> SamplingParams:
    """Return the parameters that held-out problems are sampled with."""
    return SamplingParams(max_tokens=max_tokens, temperature=temperature, stop=rollout.stop)
