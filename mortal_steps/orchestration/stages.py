"""The stages of a run, as the training loop calls them.

A stage does its work on the run's workers and commits the result to the store; stages exchange
references. The same protocol has two implementations: plain functions, in this module, and
Prefect's tasks (`mortal_tasks.stages`), which add retries, caching and names.
"""

from __future__ import annotations

from functools import partial
from typing import Protocol

from mortal_steps.orchestration.evaluation import evaluate
from mortal_steps.orchestration.session import Session
from mortal_steps.system.threads import in_thread
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
    StageTiming,
    StepResult,
    WeightsRef,
)


class Stages(Protocol):
    """Carries out the stages of a run, one call each.

    Raises the `MortalError` that ends the run. A stage that is called again after a kill returns
    what it has committed.
    """

    async def warm_start(self, session: Session, problems: FileRef) -> StageTiming:
        """Build and warm-start the starting model if the configuration asks for it, unless it
        already exists whole."""
        ...

    async def start_workers(self, session: Session, step: int) -> ActorReady:
        """Bring the actor to `step` and load the rollout workers' engines."""
        ...

    async def get_batch(self, session: Session, step: int) -> BatchRef:
        """Commit the step's problems to the store; a pure function of dataset, seed and step."""
        ...

    async def generate(
        self, session: Session, batch: BatchRef, shard: int, weights: WeightsRef
    ) -> GenerationRef:
        """Sample one shard of a batch with exactly `weights`."""
        ...

    async def reward(self, session: Session, generation: GenerationRef) -> RewardRef:
        """Score the completions of one shard, whole groups at a time."""
        ...

    async def train_step(self, session: Session, step: int, batch: Batch) -> StepResult:
        """Update the policy with one batch."""
        ...

    async def sync_weights(self, session: Session, weights: WeightsRef, worker: int) -> StageTiming:
        """Let one rollout worker load and verify a published policy version."""
        ...

    async def evaluate(self, session: Session, step: int, weights: WeightsRef) -> Evaluation:
        """Sample the held-out problems with `weights` and average what the rewards say."""
        ...

    async def checkpoint(self, session: Session, step: int, best_score: float | None) -> Checkpoint:
        """Save model, optimizer, scheduler, random streams and counters."""
        ...

    async def save_final(self, session: Session) -> FinalModel:
        """Save the trained model as a plain `from_pretrained` folder."""
        ...

    def forget(self, session: Session, before: int) -> None:
        """Drop what is kept in memory for the steps before this one: they are done and recorded."""
        ...


class PlainStages(Stages):
    """The stages as plain functions: nothing is retried, named or cached."""

    async def warm_start(self, session: Session, problems: FileRef) -> StageTiming:
        """See `Stages`; so for all."""
        return await session.build_base_model(problems)

    async def start_workers(self, session: Session, step: int) -> ActorReady:
        return await session.start_workers(step)

    async def get_batch(self, session: Session, step: int) -> BatchRef:
        return await in_thread(partial(session.get_batch, step))

    async def generate(
        self, session: Session, batch: BatchRef, shard: int, weights: WeightsRef
    ) -> GenerationRef:
        return await session.generate(batch, shard, weights)

    async def reward(self, session: Session, generation: GenerationRef) -> RewardRef:
        return await session.reward(generation)

    async def train_step(self, session: Session, step: int, batch: Batch) -> StepResult:
        return await session.train_step(step, batch)

    async def sync_weights(self, session: Session, weights: WeightsRef, worker: int) -> StageTiming:
        return await session.sync_weights(weights, worker)

    async def evaluate(self, session: Session, step: int, weights: WeightsRef) -> Evaluation:
        return await evaluate(session, step, weights)

    async def checkpoint(self, session: Session, step: int, best_score: float | None) -> Checkpoint:
        return await session.checkpoint(step, best_score=best_score)

    async def save_final(self, session: Session) -> FinalModel:
        return await session.save_final()

    def forget(self, session: Session, before: int) -> None:
        """Nothing is kept."""
