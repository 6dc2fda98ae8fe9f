"""The next train step, taken while the step before is recorded.

    actor   train 4 | commit | train 5 | commit | train 6
    flow                       record 4           record 5

A step that is taken ahead is a step like any other: the actor has committed the one before, and a
process that continues the run finds what was committed and not recorded.
"""

import asyncio
from collections.abc import Awaitable

from mortal_steps.orchestration.batch_sources.base import BatchSource, StepBatch
from mortal_steps.orchestration.batch_sources.rollouts import drop
from mortal_steps.orchestration.session import Session
from mortal_steps.types import StepResult

TURNS_TO_ASK = 4
"""Turns of the event loop after which a step that begins has sent all the requests it can, so that
workers compute while this process records the step before. Fewer cost time alone."""


async def sent_requests() -> None:
    """Return when what has begun has sent its requests."""
    for _ in range(TURNS_TO_ASK):
        await asyncio.sleep(0)


class StepAhead:
    """At most one step, of a run whose source has the batch at hand."""

    def __init__(self, session: Session, source: BatchSource) -> None:
        self._session = session
        self._source = source
        self._batch: StepBatch | None = None
        self._training: asyncio.Task[StepResult] | None = None

    @property
    def is_under_way(self) -> bool:
        return self._training is not None

    def waits(self, step: int) -> bool:
        """Return whether the actor is to do something else before `step`, or the batch is yet to
        be made."""
        schedule = self._session.schedule
        asked_first = schedule.evaluates(step) or schedule.checkpoints(step)
        return asked_first or not self._source.has_at_hand(step)

    async def begin(self, step: int) -> None:
        """Have the actor take `step`."""
        self._batch = await self._source.take(step)
        self._training = asyncio.create_task(self._session.train_step(step, self._batch.batch))
        await sent_requests()

    def take(self) -> tuple[StepBatch, Awaitable[StepResult]] | None:
        """Return the batch of the step that is under way, and its training; None if none is."""
        batch, training = self._batch, self._training
        self._batch = self._training = None
        return None if batch is None or training is None else (batch, training)

    async def drop(self) -> None:
        """Wait no more for the step that is under way. What it commits is found again."""
        if self._training is not None:
            await drop([self._training])
