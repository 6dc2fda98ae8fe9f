"""Reward functions by name, and a completion's reward: the weighted sum of their scores."""

from collections.abc import Iterable, Mapping

from mortal_steps.config import RewardsConfig
from mortal_steps.types import RewardedShard

LEAST_SPREAD = 1e-6
"""The difference between rewards, as a part of the larger one, below which they count as equal: TRL
divides by their standard deviation plus 1e-4."""


def reward_names(rewards: RewardsConfig) -> tuple[str, ...]:
    """One name per reward, in their order. The name is the one that the reward was given, or its
    function's own, the part after the last `:`, or its model's, the part after the last `/`; where
    two rewards share it, each goes by its whole `module:function` or model."""
    terms = rewards.all_terms
    names = [term.name or term.short_name for term in terms]
    return tuple(
        name if names.count(name) == 1 else term.name or term.full_name
        for term, name in zip(terms, names, strict=True)
    )


def reward_weights(rewards: RewardsConfig) -> dict[str, float]:
    """Weight of each reward function by name; 1 where none are given."""
    weights = [term.weight for term in rewards.all_terms]
    return dict(zip(reward_names(rewards), weights, strict=True))


def weighted_sum(scores: Mapping[str, float | None], weights: Mapping[str, float]) -> float | None:
    """Return the weighted sum over the functions that scored, as in TRL; None, which takes no part
    in training, if all abstained."""
    scored = [weights[name] * score for name, score in scores.items() if score is not None]
    return sum(scored) if scored else None


def mean_of(values: Iterable[float | None]) -> float | None:
    """Return the mean of what was scored; None where nothing was."""
    scored = [value for value in values if value is not None]
    return sum(scored) / len(scored) if scored else None


def differ(low: float, high: float) -> bool:
    """Return whether the higher of two rewards is higher by more than what sums are rounded by."""
    return high - low > LEAST_SPREAD * max(1.0, abs(high))


def total_reward(shard: RewardedShard, weights: Mapping[str, float]) -> tuple[float, int]:
    """Sum of the rewards of a shard's completions, and how many have one."""
    totals = [weighted_sum(scores, weights) for group in shard.rewards for scores in group]
    scored = [total for total in totals if total is not None]
    return float(sum(scored)), len(scored)
