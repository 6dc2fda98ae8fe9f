"""Reward functions by name, and a completion's reward: the weighted sum of their scores."""

from __future__ import annotations

from collections.abc import Mapping

from mortal_steps.config import RunConfig
from mortal_steps.types import RewardedShard


def reward_names(config: RunConfig) -> tuple[str, ...]:
    """One unique name per entry of `rewards.functions`, in its order.

    The name is the function's own, the part after the last `:`; where two functions share it, each
    goes by its whole `module:function`.
    """
    specs = config.rewards.functions
    names = [spec.rpartition(":")[2] for spec in specs]
    return tuple(
        name if names.count(name) == 1 else spec for spec, name in zip(specs, names, strict=True)
    )


def reward_weights(config: RunConfig) -> dict[str, float]:
    """Weight of each reward function by name; 1 where none are given."""
    names = reward_names(config)
    return dict(zip(names, config.rewards.weights or [1.0] * len(names), strict=True))


def weighted_sum(scores: Mapping[str, float | None], weights: Mapping[str, float]) -> float | None:
    """A completion's reward: the weighted sum over the functions that scored, as in TRL.

    None when every function abstained: such a completion takes no part in training.
    """
    scored = [weights[name] * score for name, score in scores.items() if score is not None]
    return sum(scored) if scored else None


def total_reward(shard: RewardedShard, weights: Mapping[str, float]) -> tuple[float, int]:
    """Sum of the rewards of a shard's completions, and how many have one."""
    totals = [weighted_sum(scores, weights) for group in shard.rewards for scores in group]
    scored = [total for total in totals if total is not None]
    return float(sum(scored)), len(scored)
