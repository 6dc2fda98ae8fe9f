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
from typing import Any, NamedTuple

from prefect import flow
from prefect.logging import get_run_logger
from prefect.runtime import flow_run
from prefect.utilities.urls import url_for

from mortal_steps.config import RunConfig
from mortal_steps.errors import ServerError
from mortal_steps.report.progress import ProgressLine
from mortal_steps.report.recorder import Recorder
from mortal_steps.report.summary import RunSummary, summarize
from mortal_steps.run import open_run
from mortal_steps.schedule import shard_bounds
from mortal_steps.session import Session, at_work
from mortal_steps.types import BatchRef, RewardRef, WeightsRef
from tasks.artifacts import RunArtifacts
from tasks.checkpoint import checkpoint, save_final
from tasks.durability import as_one, committed
from tasks.evaluate import evaluate
from tasks.generate import generate
from tasks.get_batch import get_batch
from tasks.results import use_result_folder
from tasks.reward import reward
from tasks.server_watch import ServerWatch, watch_server
from tasks.start_workers import start_workers, warm_start
from tasks.sync_weights import sync_weights
from tasks.train_step import train_step


def flow_run_name() -> str:
    """`grpo/<run_id>`."""
    return f"grpo/{_run_id(flow_run.parameters['config'])}"


class Reporting(NamedTuple):
    """Where a stage tells of itself: the run's logs and the live line."""

    recorder: Recorder
    progress: ProgressLine


@flow(name="grpo-train", flow_run_name=flow_run_name, persist_result=False)
async def grpo_train(config: RunConfig) -> RunSummary:
    """Train a policy with GRPO, every stage a task.

    Without a `run_id` the run is named after the flow run, so that a Retry finds it again.
    Raises the `MortalError` that ended the run; the run goes on when the flow runs again.
    """
    run = open_run(config.model_copy(update={"run_id": _run_id(config)}))
    if run.manifest.status == "completed":
        return summarize(run)
    use_result_folder()
    get_run_logger().info("attempt %d, from step %d", flow_run.run_count, run.manifest.step)
    async with watch_server(run.config.logging.server_patience_s) as server:
        async with at_work(run, url_for("flow-run", obj_id=flow_run.id)) as session:
            await _train(session, server)
        await server.back()
    return summarize(run)


async def _train(session: Session, server: ServerWatch) -> None:
    """Every step from the manifest's to the last, then the finished model."""
    run = session.run
    first = run.manifest.step
    run.drop_logs_after(first)
    recorder = Recorder(run)
    artifacts = RunArtifacts(run, recorder.totals)
    say = get_run_logger().info
    with ProgressLine(start=first, num_steps=run.info.num_steps, say=say) as progress:
        report = Reporting(recorder, progress)
        weights = await _start(session, report, first)
        progress.begin_steps()
        for step in range(first, run.info.num_steps):
            await _ready(session, server, step)
            recorder.begin_step()
            batch = await committed(get_batch, session, step=step)
            rewards = await _roll_out(session, batch, weights)
            result = await train_step(session, step, [as_one(shard) for shard in rewards])
            if result.weights is not None:
                weights = result.weights
                await _sync(session, report, weights)
            took = recorder.step(batch, rewards, result)
            await _after_step(session, report, step + 1, weights)
            run.update(step=step + 1)
            progress.update(took)
            if (step + 1) % session.config.logging.artifact_steps == 0:
                await artifacts.refresh()
        run.update(final=await save_final(session))
    recorder.draw()
    await artifacts.refresh()


async def _ready(session: Session, server: ServerWatch, step: int) -> None:
    """Go on with `step`, or save the actor's state if the server is gone for good."""
    try:
        await server.ready()
    except ServerError as error:
        run = session.run
        if step not in {saved.step for saved in run.manifest.checkpoints}:
            run.note_checkpoint(await checkpoint(session, step, False), run.score(step))
        resume = f"`mortal resume {run.info.run_id}`"
        raise ServerError(f"{error}; step {step} is saved, go on with {resume}") from error


async def _start(session: Session, report: Reporting, first: int) -> WeightsRef:
    """The starting model, the workers, the first weights on each, the starting point evaluated."""
    model, info = session.config.model, session.run.info
    if model.new or model.warm_start:
        report.progress.note("making the starting model, unless it is in the cache")
        report.recorder.timing(await warm_start(session, info.train_problems))
    report.progress.note(
        f"starting the actor and {session.compute.num_workers('rollout')} rollout workers"
    )
    ready = await start_workers(session, first)
    report.recorder.timing(ready.timing)
    await _sync(session, report, ready.weights)
    report.progress.note(
        f"training {ready.num_parameters:,} parameters on {info.num_problems:,} problems, "
        f"step {first} to {info.num_steps}"
    )
    if first == 0 and session.evaluates(0):
        await _evaluate(session, report, 0, ready.weights)
    return ready.weights


async def _roll_out(session: Session, batch: BatchRef, weights: WeightsRef) -> list[RewardRef]:
    """Generate and score every shard; a shard is scored when its own generation ends."""

    async def roll_out(shard: int) -> RewardRef:
        place: dict[str, Any] = {"step": batch.step, "shard": shard}
        generation = await committed(
            generate, session, **place, batch=as_one(batch), weights=as_one(weights)
        )
        return await committed(reward, session, **place, generation=as_one(generation))

    num_shards = len(shard_bounds(batch.num_problems, session.config.num_shards))
    return list(await asyncio.gather(*(roll_out(shard) for shard in range(num_shards))))


async def _sync(session: Session, report: Reporting, weights: WeightsRef) -> None:
    """Bring every rollout worker to a published version."""
    workers = range(session.compute.num_workers("rollout"))
    timings = await asyncio.gather(
        *(sync_weights(session, weights.version, worker, as_one(weights)) for worker in workers)
    )
    report.recorder.timing(*timings)


async def _after_step(session: Session, report: Reporting, done: int, weights: WeightsRef) -> None:
    """What comes every K steps: evaluate, then checkpoint, which may be the best so far."""
    run = session.run
    if session.evaluates(done):
        await _evaluate(session, report, done, weights)
    if session.checkpoints(done):
        score = run.score(done)
        saved = await checkpoint(session, done, run.is_best(score))
        report.recorder.timing(saved.timing)
        run.note_checkpoint(saved, score)


async def _evaluate(session: Session, report: Reporting, done: int, weights: WeightsRef) -> None:
    result = await evaluate(session, done, weights)
    report.recorder.evaluation(result)
    session.run.update(evaluation=result)
    scores = ", ".join(f"{name} {value:.3f}" for name, value in result.metrics.items())
    report.progress.note(f"evaluation after step {done}: {scores}")


def _run_id(config: RunConfig) -> str:
    return config.run_id or f"{config.name}-{str(flow_run.id)[:8]}"
