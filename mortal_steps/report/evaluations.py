"""What an evaluation says: mean scores over the held-out problems."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

from mortal_steps.config import RunConfig
from mortal_steps.rewards.base import reward_weights, total_reward
from mortal_steps.types import RewardedShard


def mean_scores(config: RunConfig, shards: Sequence[RewardedShard]) -> dict[str, float]:
    """Mean of each reward function over the problems it scored, and of the weighted sum.

    Also how many completions are masked, by the function that failed on them.
    """
    weights = reward_weights(config)
    scores: dict[str, list[float]] = defaultdict(list)
    for shard in shards:
        for group in shard.rewards:
            for completion in group:
                for name, value in completion.items():
                    if value is not None:
                        scores[name].append(value)
    means = {name: sum(scores[name]) / len(scores[name]) for name in weights if scores[name]}
    for failure in (failure for shard in shards for failure in shard.failures):
        key = f"rewards/{failure.function}/masked"
        means[key] = means.get(key, 0.0) + failure.num_completions
    totals = [total_reward(shard, weights) for shard in shards]
    num_scored = sum(count for _, count in totals)
    if num_scored:
        means["reward"] = sum(total for total, _ in totals) / num_scored
    return means
