"""evaluate: scores on the held-out problems."""

import asyncio
from collections import defaultdict

from prefect import task

from mortal_steps.rewards.names import reward_names
from mortal_steps.schedule import shard_bounds
from mortal_steps.session import Session
from mortal_steps.types import Evaluation, RewardedShard, RewardRef, StageTiming, WeightsRef
from tasks.durability import DURABLE


@task(name="evaluate", task_run_name="evaluate/{step}", **DURABLE)
async def evaluate(session: Session, step: int, weights: WeightsRef) -> Evaluation:
    """Sample the held-out problems with `weights` and average what the rewards say."""
    num_problems = session.run.info.num_eval_problems
    num_shards = len(shard_bounds(num_problems, session.config.num_shards))
    shards = await asyncio.gather(
        *(session.evaluate_shard(step, shard, weights) for shard in range(num_shards))
    )
    return Evaluation(
        step=step,
        num_problems=num_problems,
        metrics=_mean_scores(session, shards),
        timing=StageTiming(
            stage="evaluate",
            step=step,
            busy_s=sum(s.timing.busy_s + s.generation.timing.busy_s for s in shards),
            wait_s=sum(s.timing.wait_s + s.generation.timing.wait_s for s in shards),
        ),
    )


def _mean_scores(session: Session, shards: list[RewardRef]) -> dict[str, float]:
    """Mean of each reward function over the problems it scored, and of the weighted sum."""
    scores: dict[str, list[float]] = defaultdict(list)
    for shard in shards:
        for group in session.store.read_record(shard.file, RewardedShard).rewards:
            for completion in group:
                for name, value in completion.items():
                    if value is not None:
                        scores[name].append(value)
    means = {
        name: sum(scores[name]) / len(scores[name])
        for name in reward_names(session.config)
        if scores[name]
    }
    num_scored = sum(shard.num_scored for shard in shards)
    if num_scored:
        means["reward"] = sum(shard.reward_sum for shard in shards) / num_scored
    return means
