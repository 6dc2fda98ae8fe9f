"""get_batch: which problems a step trains on."""

from functools import partial

from prefect import task

from mortal_steps.orchestration.session import Session
from mortal_steps.system.threads import in_thread
from mortal_steps.types import BatchRef
from mortal_tasks.durability import cached_by, just_made
from mortal_tasks.tags import tag_stage


@task(
    name="get_batch",
    task_run_name="get_batch/{step}",
    **cached_by("get_batch", lambda step: f"{step}"),
)
async def get_batch(session: Session, step: int) -> BatchRef:
    """Commit the step's problems to the store; a pure function of dataset, seed and step."""
    tag_stage("get_batch")
    return just_made(session, await in_thread(partial(session.get_batch, step)))
