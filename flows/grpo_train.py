"""The GRPO run as a Prefect flow: order, branching and names.

    get_batch -> generate x shards -> reward x shards -> train_step -> sync_weights x workers
                                                         every K: evaluate, checkpoint

The flow and its tasks are async and fan out by `asyncio.gather`; between them travel references.
Starting, retrying and resuming are the same: open the run, go on at its manifest's step. That step
advances when everything about a step is done, so what a kill cuts off is asked for again, and
whoever has done it already answers from the store.
"""

from __future__ import annotations

import asyncio
from typing import Any

from prefect import flow
from prefect.logging import get_run_logger
from prefect.runtime import flow_run
from prefect.utilities.urls import url_for

from mortal_steps.config import RunConfig
from mortal_steps.report.progress import ProgressLine
from mortal_steps.report.recorder import Recorder
from mortal_steps.report.summary import RunSummary, summarize
from mortal_steps.run import open_run
from mortal_steps.schedule import shard_bounds
from mortal_steps.session import Session, at_work
from mortal_steps.types import BatchRef, RewardRef, WeightsRef
from tasks.artifacts import RunArtifacts
from tasks.checkpoint import checkpoint, save_final
from tasks.durability import committed
from tasks.evaluate import evaluate
from tasks.generate import generate
from tasks.get_batch import get_batch
from tasks.reward import reward
from tasks.start_workers import start_workers, warm_start
from tasks.sync_weights import sync_weights
from tasks.train_step import train_step


def flow_run_name() -> str:
    """`grpo/<run_id>`."""
    return f"grpo/{_run_id(flow_run.parameters['config'])}"


@flow(name="grpo-train", flow_run_name=flow_run_name, persist_result=False)
async def grpo_train(config: RunConfig) -> RunSummary:
    """Train a policy with GRPO, every stage a task.

    Without a `run_id` the run is named after the flow run, so that a Retry finds it again.
    Raises the `MortalError` that ended the run; the run goes on when the flow runs again.
    """
    run = open_run(config.model_copy(update={"run_id": _run_id(config)}))
    if run.manifest.status == "completed":
        return summarize(run)
    async with at_work(run, url_for("flow-run", obj_id=flow_run.id)) as session:
        await _train(session)
    return summarize(run)


async def _train(session: Session) -> None:
    """Every step from the last checkpoint to the end, then the finished model."""
    run, config = session.run, session.config
    recorder = Recorder(run)
    artifacts = RunArtifacts(run, recorder.totals)
    if config.model.new or config.model.warm_start:
        recorder.timing(await warm_start(session, run.info.train_problems))
    first = run.manifest.step
    weights = await _start(session, recorder, first)
    logger = get_run_logger()
    with ProgressLine(start=first, num_steps=run.info.num_steps, say=logger.info) as progress:
        for step in range(first, run.info.num_steps):
            recorder.begin_step()
            batch = await committed(get_batch, session, step=step)
            rewards = await _roll_out(session, batch, weights)
            result = await train_step(session, step, rewards)
            if result.weights is not None:
                weights = result.weights
                await _sync(session, recorder, weights)
            report = recorder.step(batch, rewards, result)
            await _after_step(session, recorder, step + 1, weights)
            run.update(step=step + 1)
            progress.update(report)
            if (step + 1) % config.logging.artifact_steps == 0:
                await artifacts.refresh()
    run.update(final=await save_final(session))
    recorder.draw()
    await artifacts.refresh()


async def _start(session: Session, recorder: Recorder, first: int) -> WeightsRef:
    """Workers up, the first weights on every one of them, and the starting point evaluated."""
    run = session.run
    run.drop_logs_after(first)
    ready = await start_workers(session, first)
    recorder.timing(ready.timing)
    await _sync(session, recorder, ready.weights)
    if first == 0 and session.evaluates(0):
        await _evaluate(session, recorder, 0, ready.weights)
    return ready.weights


async def _roll_out(session: Session, batch: BatchRef, weights: WeightsRef) -> list[RewardRef]:
    """Generate and score every shard; a shard is scored when its own generation ends."""

    async def roll_out(shard: int) -> RewardRef:
        place: dict[str, Any] = {"step": batch.step, "shard": shard}
        generation = await committed(generate, session, **place, batch=batch, weights=weights)
        return await committed(reward, session, **place, generation=generation)

    num_shards = len(shard_bounds(batch.num_problems, session.config.num_shards))
    return list(await asyncio.gather(*(roll_out(shard) for shard in range(num_shards))))


async def _sync(session: Session, recorder: Recorder, weights: WeightsRef) -> None:
    """Bring every rollout worker to a published version."""
    workers = range(session.compute.num_workers("rollout"))
    timings = await asyncio.gather(
        *(sync_weights(session, weights.version, worker, weights) for worker in workers)
    )
    recorder.timing(*timings)


async def _after_step(session: Session, recorder: Recorder, done: int, weights: WeightsRef) -> None:
    """What comes every K steps: evaluate, then checkpoint, which may be the best so far."""
    run = session.run
    if session.evaluates(done):
        await _evaluate(session, recorder, done, weights)
    if session.checkpoints(done):
        score = run.score(done)
        saved = await checkpoint(session, done, run.is_best(score))
        recorder.timing(saved.timing)
        run.note_checkpoint(saved, score)


async def _evaluate(session: Session, recorder: Recorder, done: int, weights: WeightsRef) -> None:
    result = await evaluate(session, done, weights)
    recorder.evaluation(result)
    session.run.update(evaluation=result)
    get_run_logger().info(
        "evaluation after step %d: %s",
        done,
        ", ".join(f"{name} {value:.3f}" for name, value in result.metrics.items()),
    )


def _run_id(config: RunConfig) -> str:
    return config.run_id or f"{config.name}-{str(flow_run.id)[:8]}"
