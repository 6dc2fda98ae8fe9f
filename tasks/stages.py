"""The stages of a run as Prefect's tasks: retried, cached, named, shown."""

from collections.abc import Collection, Sequence

from prefect import task

from mortal_steps.compute.base import Role
from mortal_steps.compute.pool import Compute
from mortal_steps.orchestration.session import Session
from mortal_steps.policy.batches import Batch
from mortal_steps.runs.run import Run
from mortal_steps.types import (
    ActorReady,
    BatchRef,
    Checkpoint,
    Evaluation,
    FileRef,
    FinalModel,
    GenerationRef,
    RewardRef,
    StageTiming,
    StepResult,
    WeightsRef,
)
from mortal_tasks.durability import DURABLE, cached_by, committed, opaque, tag_stage, tag_worker
from mortal_tasks.results import drop_results, forget_results
from mortal_tasks.segments import Segments


@task(name="warm_start", task_run_name="warm_start", **DURABLE)
async def warm_start(session: Session, problems: FileRef) -> StageTiming:
    """See `Session`; so for all."""
    tag_stage("warm_start")
    return await Session.warm_start(session, problems)


@task(name="start_workers", task_run_name="start_workers/{step}", **DURABLE)
async def start_workers(session: Session, step: int) -> ActorReady:
    tag_stage("start_workers")
    return await Session.start_workers(session, step)


@task(
    name="get_batch",
    task_run_name="get_batch/{step}",
    **cached_by("get_batch", lambda step: f"{step}"),
)
async def get_batch(session: Session, step: int) -> BatchRef:
    return await Session.get_batch(session, step)


@task(
    name="generate",
    task_run_name="generate/{step}/{shard}",
    **cached_by(
        "generate",
        lambda step, shard, batch, weights: (
            f"{step}-{shard}-v{weights.version}-{batch.file.sha256}"
        ),
    ),
)
async def generate(
    session: Session, step: int, shard: int, batch: BatchRef, weights: WeightsRef
) -> GenerationRef:
    generated = await Session.generate(session, batch, shard, weights)
    tag_worker()
    return generated


@task(
    name="reward",
    task_run_name="reward/{step}/{shard}",
    **cached_by(
        "reward", lambda step, shard, generation: f"{step}-{shard}-{generation.file.sha256}"
    ),
)
async def reward(session: Session, step: int, shard: int, generation: GenerationRef) -> RewardRef:
    scored = await Session.reward(session, generation)
    tag_worker()
    return scored


@task(name="train_step", task_run_name="train_step/{step}", **DURABLE)
async def train_step(
    session: Session, step: int, batch: Batch, shards: Sequence[RewardRef]
) -> StepResult:
    """Prefect links this task run to those that made the `shards`."""
    tag_stage("train_step", replayed=session.is_committed("train_step", step))
    return await Session.train_step(session, step, batch)


@task(name="sync_weights", task_run_name="sync_weights/{version}/{worker}", **DURABLE)
async def sync_weights(
    session: Session, version: int, worker: int, weights: WeightsRef
) -> StageTiming:
    tag_stage("sync_weights")
    tag_worker(worker)
    return await Session.sync_weights(session, weights, worker)


@task(name="evaluate", task_run_name="evaluate/{step}", **DURABLE)
async def evaluate(session: Session, step: int, weights: WeightsRef | None) -> Evaluation:
    tag_stage("evaluate")
    return await Session.evaluate(session, step, weights)


@task(name="draw_order", task_run_name="draw_order/{epoch}", **DURABLE)
async def draw_order(session: Session, epoch: int, step: int) -> FileRef:
    tag_stage("draw_order")
    return await Session.draw_order(session, epoch, step)


@task(name="checkpoint", task_run_name="checkpoint/{step}", **DURABLE)
async def checkpoint(session: Session, step: int, best_score: float | None) -> Checkpoint:
    tag_stage("checkpoint")
    return await Session.checkpoint(session, step, best_score=best_score)


@task(name="save_final", task_run_name="save_final", **DURABLE)
async def save_final(session: Session) -> FinalModel:
    tag_stage("save_final")
    return await Session.save_final(session)


class PrefectSession(Session):
    """Runs each stage as a task run of its step's segment, or of the flow run."""

    def __init__(
        self,
        segments: Segments,
        run: Run,
        compute: Compute,
        roles: Collection[Role],
        *,
        samples: bool,
    ) -> None:
        super().__init__(run, compute, roles, samples=samples)
        self._segments = segments

    async def warm_start(self, problems: FileRef) -> StageTiming:
        return await warm_start(self, problems)

    async def start_workers(self, step: int) -> ActorReady:
        return await start_workers(self, step)

    async def get_batch(self, step: int) -> BatchRef:
        async with self._segments.at(step):
            return await committed(get_batch, self, step=step)

    async def generate(self, batch: BatchRef, shard: int, weights: WeightsRef) -> GenerationRef:
        async with self._segments.at(batch.step):
            return await committed(
                generate,
                self,
                step=batch.step,
                shard=shard,
                batch=opaque(batch),
                weights=opaque(weights),
            )

    async def reward(self, generation: GenerationRef) -> RewardRef:
        async with self._segments.at(generation.step):
            return await committed(
                reward,
                self,
                step=generation.step,
                shard=generation.shard,
                generation=opaque(generation),
            )

    async def train_step(self, step: int, batch: Batch) -> StepResult:
        async with self._segments.at(step):
            return await train_step(
                self, step, opaque(batch), [opaque(shard) for shard in batch.shards]
            )

    async def sync_weights(self, weights: WeightsRef, worker: int) -> StageTiming:
        async with self._segments.at(weights.version):  # the first step that it may sample
            return await sync_weights(self, weights.version, worker, opaque(weights))

    async def evaluate(self, step: int, weights: WeightsRef | None) -> Evaluation:
        return await evaluate(self, step, weights)

    async def draw_order(self, epoch: int, step: int) -> FileRef:
        async with self._segments.at(step):
            return await draw_order(self, epoch, step)

    async def checkpoint(self, step: int, *, best_score: float | None) -> Checkpoint:
        return await checkpoint(self, step, best_score)

    async def save_final(self) -> FinalModel:
        return await save_final(self)

    def forget(self, before: int) -> None:
        """Drop what Prefect keeps of these steps' results, and end their segments."""
        self._segments.end(before)
        forget_results()
        drop_results(self.run.info.uid, before=before)
