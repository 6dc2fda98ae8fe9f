"""generate: one shard of completions, sampled by whichever rollout worker is free."""

from prefect import task

from mortal_steps.orchestration.session import Session
from mortal_steps.types import BatchRef, GenerationRef, WeightsRef
from mortal_tasks.durability import cached_by, just_made
from mortal_tasks.tags import tag_stage, tag_worker


@task(
    name="generate",
    task_run_name="generate/{step}/{shard}",
    **cached_by(
        "generate", lambda step, shard, batch, weights: f"{step}-{shard}-v{weights.version}"
    ),
)
async def generate(
    session: Session, step: int, shard: int, batch: BatchRef, weights: WeightsRef
) -> GenerationRef:
    """Sample with exactly `weights`; the completions are committed to the store."""
    tag_stage("generate", replayed=session.is_committed("generate", step, shard))
    generated = await session.generate(batch, shard, weights)
    tag_worker()
    return just_made(session, generated)
