"""checkpoint: the actor's whole state; and the finished model."""

from prefect import task

from mortal_steps.orchestration.session import Session
from mortal_steps.types import Checkpoint, FinalModel
from mortal_tasks.durability import DURABLE
from mortal_tasks.tags import tag_stage


@task(name="checkpoint", task_run_name="checkpoint/{step}", **DURABLE)
async def checkpoint(session: Session, step: int, best_score: float | None) -> Checkpoint:
    """Save model, optimizer, scheduler, random streams and counters."""
    tag_stage("checkpoint")
    return await session.checkpoint(step, best_score=best_score)


@task(name="save_final", task_run_name="save_final", **DURABLE)
async def save_final(session: Session) -> FinalModel:
    """Save the trained model as a plain `from_pretrained` folder."""
    tag_stage("save_final")
    return await session.save_final()
