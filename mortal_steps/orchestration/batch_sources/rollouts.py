"""The rollout side of the run: steps sampled in order, at most `staleness` ahead of training.

    staleness 0     generate 0 | train 0 | generate 1 | train 1 | ...
    staleness 1     generate 0 | generate 1 | generate 2 | ...
                               | train 0    | train 1    | ...

Which version samples which step is a function of the step (`schedule.policy_version`), never of
what happened to be ready, so both come out the same however fast either side is.
"""

import asyncio
import contextlib
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Iterable
from typing import Any

from mortal_steps.orchestration.batch_sources.base import BatchSource, RolloutWorkers, StepBatch
from mortal_steps.orchestration.session import Session
from mortal_steps.policy.batches import ScoredRollouts
from mortal_steps.types import BatchRef, GenerationRef, PolicyVersion, RewardRef, WeightsRef


class Rollouts(BatchSource):
    """Samples and scores with the run's own workers, up to `rollout.staleness` steps ahead."""

    def __init__(self, *, session: Session, workers: RolloutWorkers) -> None:
        self.session = session
        self._workers = workers
        self._published: dict[PolicyVersion, WeightsRef] = {}
        self._next = 0
        self._under_way: deque[asyncio.Task[StepBatch]] = deque()
        self._drawing: dict[int, asyncio.Task[BatchRef]] = {}
        """The problems of a step that is not sampled yet."""

    def begin(self, step: int, published: Iterable[WeightsRef]) -> None:
        self._next = step
        self._published = {weights.version: weights for weights in published}

    async def close(self) -> None:
        """Cancel what is under way. What it has committed is found again when the run continues."""
        await drop([*self._under_way, *self._drawing.values()])

    def publish(self, weights: WeightsRef) -> None:
        """Take a new version to sample with, and forget those that no later step needs."""
        oldest = self.session.schedule.sampling_version(self._next)
        kept = {v: w for v, w in self._published.items() if v >= oldest}
        self._published = {**kept, weights.version: weights}

    def look_ahead(self, step: int) -> None:
        """Begin the steps that may be sampled by now: up to `step + staleness`."""
        ahead = self.session.run.config.rollout.staleness
        last = self.session.run.num_steps - 1
        while self._next <= min(step + ahead, last):
            weights = self._published[self.session.schedule.sampling_version(self._next)]
            rolling = asyncio.create_task(self.roll_out(self._next, weights))
            self._under_way.append(rolling)
            self._next += 1

    async def take(self, step: int) -> StepBatch:
        """Return the rollouts of `step`, which is the next step to train on."""
        self.look_ahead(step)
        rolled_out = await self._under_way[0]
        self._under_way.popleft()
        return rolled_out

    async def roll_out(self, step: int, weights: WeightsRef) -> StepBatch:
        """Generate and score every shard of a step. A shard is scored as soon as it is generated.
        The workers are free for the next step when the last shard is generated. The problems of the
        next step need no weights, so they are drawn while this step is scored."""
        session = self.session
        drawing = self._drawing.pop(step, None) or asyncio.create_task(self._draw(step))
        try:
            async with self.scoring(drawing, weights) as scores:
                if self._next == step + 1 < session.run.num_steps:
                    self._drawing[step + 1] = asyncio.create_task(self._draw(step + 1))
                return StepBatch(await drawing, ScoredRollouts(rewards=await scores))
        finally:
            await drop([drawing])

    @contextlib.asynccontextmanager
    async def scoring(
        self, drawing: Awaitable[BatchRef], weights: WeightsRef
    ) -> AsyncIterator[Awaitable[list[RewardRef]]]:
        """Sample every shard of a batch with these weights, then enter the block, in which its
        scores are awaited: each shard is scored as soon as it is there."""
        generating: list[asyncio.Task[GenerationRef]] = []
        scoring: list[asyncio.Task[RewardRef]] = []
        try:
            async with self._workers.sampling_with(weights):
                batch = await drawing
                for shard in self.session.shards_of(batch):
                    generating.append(asyncio.create_task(self._generate(batch, shard, weights)))
                    scoring.append(asyncio.create_task(self._score(generating[-1])))
                await asyncio.gather(*generating)
            yield asyncio.gather(*scoring)
        finally:
            await drop([*generating, *scoring])

    async def _draw(self, step: int) -> BatchRef:
        return await self.session.get_batch(step)

    async def _generate(self, batch: BatchRef, shard: int, weights: WeightsRef) -> GenerationRef:
        return await self.session.generate(batch, shard, weights)

    async def _score(self, generating: asyncio.Task[GenerationRef]) -> RewardRef:
        scores = self.session.run.config.rewards_and_teachers is not None
        score = self.session.reward if scores else self.session.leave_unscored
        return await score(await generating)


async def drop(tasks: Iterable[asyncio.Task[Any]]) -> None:
    """Cancel a task unless it is done, and wait until it has ended."""
    everything = list(tasks)
    for task in everything:
        task.cancel()
    await asyncio.gather(*everything, return_exceptions=True)
