"""sync_weights: one rollout worker loads and verifies a published policy version."""

from prefect import task

from mortal_steps.orchestration.session import Session
from mortal_steps.types import StageTiming, WeightsRef
from mortal_tasks.durability import DURABLE
from mortal_tasks.tags import tag_stage, tag_worker


@task(name="sync_weights", task_run_name="sync_weights/{version}/{worker}", **DURABLE)
async def sync_weights(
    session: Session, version: int, worker: int, weights: WeightsRef
) -> StageTiming:
    """Digest and canary must match, else the worker refuses to sample."""
    tag_stage("sync_weights")
    tag_worker(worker)
    return await session.sync_weights(weights, worker)
