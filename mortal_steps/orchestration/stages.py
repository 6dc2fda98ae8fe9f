"""The stages of a run, as the training loop calls them, and the reporter that it speaks to.

A stage does its work on the run's workers and commits the result to the store; stages exchange
references. Prefect's tasks (`mortal_tasks.stages`) derive from these plain functions and add
retries, caching and names.
"""

from __future__ import annotations

import logging
from functools import partial

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

logger = logging.getLogger(__name__)


class Stages:
    """Carries out the stages of a run, one call each; nothing is retried, named or cached.

    Raises the `MortalError` that ends the run. A stage that is called again after a kill returns
    what it has committed.
    """

    async def warm_start(self, session: Session, problems: FileRef) -> StageTiming:
        """Build and warm-start the starting model if the configuration asks for it, unless it
        already exists whole."""
        return await session.build_base_model(problems)

    async def start_workers(self, session: Session, step: int) -> ActorReady:
        """Bring the actor to `step` and load the rollout workers' engines."""
        return await session.start_workers(step)

    async def get_batch(self, session: Session, step: int) -> BatchRef:
        """Commit the step's problems to the store; a pure function of dataset, seed and step."""
        return await in_thread(partial(session.get_batch, step))

    async def generate(
        self, session: Session, batch: BatchRef, shard: int, weights: WeightsRef
    ) -> GenerationRef:
        """Sample one shard of a batch with exactly `weights`."""
        return await session.generate(batch, shard, weights)

    async def reward(self, session: Session, generation: GenerationRef) -> RewardRef:
        """Score the completions of one shard, whole groups at a time."""
        return await session.reward(generation)

    async def train_step(self, session: Session, step: int, batch: Batch) -> StepResult:
        """Update the policy with one batch."""
        return await session.train_step(step, batch)

    async def sync_weights(self, session: Session, weights: WeightsRef, worker: int) -> StageTiming:
        """Let one rollout worker load and verify a published policy version."""
        return await session.sync_weights(weights, worker)

    async def evaluate(self, session: Session, step: int, weights: WeightsRef) -> Evaluation:
        """Sample the held-out problems with `weights` and average what the rewards say."""
        return await evaluate(session, step, weights)

    async def checkpoint(self, session: Session, step: int, best_score: float | None) -> Checkpoint:
        """Save model, optimizer, scheduler, random streams and counters."""
        return await session.checkpoint(step, best_score=best_score)

    async def save_final(self, session: Session) -> FinalModel:
        """Save the trained model as a plain `from_pretrained` folder."""
        return await session.save_final()

    def forget(self, session: Session, before: int) -> None:
        """Drop what is kept in memory for the steps before this one: they are done and recorded.
        Here nothing is kept."""


class Reporter:
    """Shows a run's progress, and can hold the run back while the place where it is shown is away.

    By default, the methods show nothing and never hold the run back.
    """

    def say(self, line: str) -> None:
        """Show one line about the run. By default it is logged."""
        logger.info("%s", line)

    def tell(self) -> None:
        """Send the run's new notices to the people responsible for it."""

    @property
    def away(self) -> bool:
        """Whether nobody would receive a message now."""
        return False

    async def ready(self) -> None:
        """Return when the run may take another step. Raises `ServerError` if the server is gone for
        good."""

    async def refresh(self) -> None:
        """Show the report that was just written to the run directory."""
