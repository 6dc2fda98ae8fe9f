"""One shard, scored by a run's workers wherever they are."""

from mortal_steps.orchestration import driver
from mortal_steps.store.records import shard_file
from mortal_steps.types import GeneratedShard, GenerationRef, RewardedShard, StageTiming
from tests.support.rewards.shards import make_shard


async def scored(run, completions, *, step=0):
    """Return the scores of these completions, and what the run has spent by then."""
    shard = make_shard(completions, step=step)
    output = shard_file(f"steps/{step:06}", "generations", 0)
    generation = GenerationRef(
        step=step,
        shard=0,
        file=run.store.write_record(output, shard, GeneratedShard),
        num_completions=len(completions),
        num_tokens=0,
        policy_version=shard.policy_version,
        timing=StageTiming(stage="generate", step=step),
    )
    async with driver.open_session(run) as session:
        answer = await session.reward(generation)
        return run.store.read_record(answer.file, RewardedShard), session.budget.spent()
