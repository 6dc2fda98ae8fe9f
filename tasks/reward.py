"""reward: the scores of one shard, as soon as its generation ends."""

from prefect import task

from mortal_steps.orchestration.session import Session
from mortal_steps.types import GenerationRef, RewardRef
from mortal_tasks.durability import cached_by, just_made
from mortal_tasks.tags import tag_stage, tag_worker


@task(
    name="reward",
    task_run_name="reward/{step}/{shard}",
    **cached_by(
        "reward", lambda step, shard, generation: f"{step}-{shard}-{generation.file.sha256}"
    ),
)
async def reward(session: Session, step: int, shard: int, generation: GenerationRef) -> RewardRef:
    """Call the reward functions; the scores are committed to the store."""
    tag_stage("reward", replayed=session.is_committed("reward", step, shard))
    scored = await session.reward(generation)
    tag_worker()
    return just_made(session, scored)
