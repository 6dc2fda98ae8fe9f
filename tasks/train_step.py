"""train_step: one batch through the actor, effectively once."""

from collections.abc import Sequence

from prefect import task

from mortal_steps.orchestration.session import Session
from mortal_steps.types import Batch, RewardRef, StepResult
from mortal_tasks.durability import DURABLE
from mortal_tasks.tags import tag_stage


@task(name="train_step", task_run_name="train_step/{step}", **DURABLE)
async def train_step(
    session: Session, step: int, batch: Batch, shards: Sequence[RewardRef] = ()
) -> StepResult:
    """Update the policy; asked again for the same step, the actor answers what it recorded.

    Prefect links the task to those that made the `shards`.
    """
    tag_stage("train_step", replayed=session.is_committed("train_step", step))
    return await session.train_step(step, batch)
