"""Scores on the held-out problems, shard by shard."""

import asyncio
from collections.abc import Mapping, Sequence

from mortal_steps.orchestration.session import Session
from mortal_steps.report.evaluations import mean_scores
from mortal_steps.schedule import shard_bounds
from mortal_steps.types import Evaluation, RewardedShard, StageTiming, WeightsRef


async def evaluate(session: Session, step: int, weights: WeightsRef) -> Evaluation:
    """Sample the held-out problems with `weights`, score them, and average the scores."""
    num_problems = session.run.info.num_eval_problems
    num_shards = len(shard_bounds(num_problems, session.config.num_shards))
    shards = await asyncio.gather(
        *(session.evaluate_shard(step, shard, weights) for shard in range(num_shards))
    )
    rewarded = [session.store.read_record(shard.file, RewardedShard) for shard in shards]
    return Evaluation(
        step=step,
        num_problems=num_problems,
        metrics=mean_scores(session.config.eval_rewards, rewarded, session.run.info.eval_sets),
        timing=StageTiming(
            stage="evaluate",
            step=step,
            busy_s=sum(s.timing.busy_s + s.generation.timing.busy_s for s in shards),
            wait_s=sum(s.timing.wait_s + s.generation.timing.wait_s for s in shards),
            functions=_added([shard.timing.functions for shard in shards]),
        ),
        failures=tuple(failure for shard in rewarded for failure in shard.failures),
    )


def _added(shards: Sequence[Mapping[str, float]]) -> dict[str, float]:
    names = dict.fromkeys(name for seconds in shards for name in seconds)
    return {name: sum(seconds.get(name, 0.0) for seconds in shards) for name in names}
