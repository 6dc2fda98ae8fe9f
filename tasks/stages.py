"""The stages of a run as Prefect's tasks: retried, cached, named, shown."""

from __future__ import annotations

from mortal_steps.orchestration.session import Session
from mortal_steps.orchestration.stages import Stages
from mortal_steps.types import (
    ActorReady,
    Batch,
    BatchRef,
    Checkpoint,
    Evaluation,
    FileRef,
    FinalModel,
    GenerationRef,
    RewardRef,
    ScoredRollouts,
    StageTiming,
    StepResult,
    WeightsRef,
)
from mortal_tasks.checkpoint import checkpoint, save_final
from mortal_tasks.durability import committed, opaque
from mortal_tasks.evaluate import evaluate
from mortal_tasks.generate import generate
from mortal_tasks.get_batch import get_batch
from mortal_tasks.history import history
from mortal_tasks.results import drop_results, forget_results
from mortal_tasks.reward import reward
from mortal_tasks.segments import Segments
from mortal_tasks.start_workers import start_workers, warm_start
from mortal_tasks.sync_weights import sync_weights
from mortal_tasks.train_step import train_step


class PrefectStages(Stages):
    """Runs each stage as a task run of its step's segment, or of the flow run itself if the stage
    belongs to no step."""

    def __init__(self, segments: Segments) -> None:
        self._segments = segments

    async def warm_start(self, session: Session, problems: FileRef) -> StageTiming:
        """See `Stages`; so for all."""
        return await warm_start(session, problems)

    async def start_workers(self, session: Session, step: int) -> ActorReady:
        return await start_workers(session, step)

    async def get_batch(self, session: Session, step: int) -> BatchRef:
        async with self._segments.at(step, begins=False):  # drawn while the last step is scored
            return await committed(get_batch, session, step=step)

    async def generate(
        self, session: Session, batch: BatchRef, shard: int, weights: WeightsRef
    ) -> GenerationRef:
        async with self._segments.at(batch.step):
            return await committed(
                generate,
                session,
                step=batch.step,
                shard=shard,
                batch=opaque(batch),
                weights=opaque(weights),
            )

    async def reward(self, session: Session, generation: GenerationRef) -> RewardRef:
        async with self._segments.at(generation.step):
            return await committed(
                reward,
                session,
                step=generation.step,
                shard=generation.shard,
                generation=opaque(generation),
            )

    async def train_step(self, session: Session, step: int, batch: Batch) -> StepResult:
        shards = batch.rewards if isinstance(batch, ScoredRollouts) else ()
        async with self._segments.at(step):
            return await train_step(
                session, step, opaque(batch), [opaque(shard) for shard in shards]
            )

    async def sync_weights(self, session: Session, weights: WeightsRef, worker: int) -> StageTiming:
        async with self._segments.at(weights.version):  # the first step that it may sample
            return await sync_weights(session, weights.version, worker, opaque(weights))

    async def evaluate(self, session: Session, step: int, weights: WeightsRef) -> Evaluation:
        return await evaluate(session, step, weights)

    async def checkpoint(self, session: Session, step: int, best_score: float | None) -> Checkpoint:
        return await checkpoint(session, step, best_score)

    async def save_final(self, session: Session) -> FinalModel:
        return await save_final(session)

    def forget(self, session: Session, before: int) -> None:
        """Drop the results of these steps that Prefect holds in memory and on disk, end their
        segments, and send their short stages to the server."""
        self._segments.end(before)
        if (kept := history.get()) is not None:
            kept.tell_short(before)
        forget_results()
        drop_results(session.run.info.uid, before=before)
