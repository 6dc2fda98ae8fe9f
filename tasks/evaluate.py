"""evaluate: scores on the held-out problems."""

from prefect import task

from mortal_steps.orchestration import evaluation
from mortal_steps.orchestration.session import Session
from mortal_steps.types import Evaluation, WeightsRef
from mortal_tasks.durability import DURABLE
from mortal_tasks.tags import tag_stage


@task(name="evaluate", task_run_name="evaluate/{step}", **DURABLE)
async def evaluate(session: Session, step: int, weights: WeightsRef) -> Evaluation:
    """Sample the held-out problems with `weights` and average what the rewards say."""
    tag_stage("evaluate")
    return await evaluation.evaluate(session, step, weights)
