"""The run's beginning: its model, its actor at the right step, its rollout workers."""

from prefect import task

from mortal_steps.orchestration.session import Session
from mortal_steps.types import ActorReady, FileRef, StageTiming
from mortal_tasks.durability import DURABLE
from mortal_tasks.tags import tag_stage


@task(name="warm_start", task_run_name="warm_start", **DURABLE)
async def warm_start(session: Session, problems: FileRef) -> StageTiming:
    """Build and warm-start the starting model if the configuration asks for it, unless it already
    exists whole."""
    tag_stage("warm_start")
    return await session.build_base_model(problems)


@task(name="start_workers", task_run_name="start_workers/{step}", **DURABLE)
async def start_workers(session: Session, step: int) -> ActorReady:
    """Bring the actor to `step` and load the rollout workers' engines."""
    tag_stage("start_workers")
    return await session.start_workers(step)
