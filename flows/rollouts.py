"""The rollout side of the run: steps sampled in order, at most `staleness` ahead of training.

    staleness 0     generate 0 | train 0 | generate 1 | train 1 | ...
    staleness 1     generate 0 | generate 1 | generate 2 | ...
                               | train 0    | train 1    | ...

Which version samples which step is a function of the step (`schedule.policy_version`), never of
what happened to be ready, so both come out the same however fast either side is.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import AsyncIterator, Iterable
from typing import Any, NamedTuple, Self

from mortal_steps.orchestration.session import Session
from mortal_steps.report.recorder import Recorder
from mortal_steps.schedule import shard_bounds
from mortal_steps.types import BatchRef, GenerationRef, PolicyVersion, RewardRef, WeightsRef
from mortal_tasks.durability import committed, opaque
from mortal_tasks.generate import generate
from mortal_tasks.get_batch import get_batch
from mortal_tasks.reward import reward
from mortal_tasks.sync_weights import sync_weights


class RolledOut(NamedTuple):
    """A step, ready to be trained on."""

    batch: BatchRef
    rewards: list[RewardRef]
    """One per shard, in shard order."""


class Rollouts:
    """Samples and scores the steps from `first` on, as far ahead as it is let."""

    def __init__(
        self, session: Session, recorder: Recorder, first: int, published: Iterable[WeightsRef]
    ) -> None:
        self._session = session
        self._recorder = recorder
        self._published = {weights.version: weights for weights in published}
        self._next = first
        self._under_way: deque[asyncio.Task[RolledOut]] = deque()
        self._workers = asyncio.Lock()
        self._loaded: PolicyVersion | None = None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        """Drop what is under way; what it has committed is found again."""
        await drop(self._under_way)

    def publish(self, weights: WeightsRef) -> None:
        """A new version to sample with; those that no later step asks for are forgotten."""
        oldest = self._session.version_for(self._next)
        kept = {v: w for v, w in self._published.items() if v >= oldest}
        self._published = {**kept, weights.version: weights}

    async def take(self, step: int) -> RolledOut:
        """The rollouts of `step`, the next one to be trained on.

        Begins all that may run beside training it: the steps up to `step + staleness`.
        """
        ahead = self._session.config.rollout.staleness
        last = self._session.run.info.num_steps - 1
        while self._next <= min(step + ahead, last):
            weights = self._published[self._session.version_for(self._next)]
            rolling = asyncio.create_task(self._roll_out(self._next, weights))
            self._under_way.append(rolling)
            self._next += 1
        rolled_out = await self._under_way[0]
        self._under_way.popleft()
        return rolled_out

    @contextlib.asynccontextmanager
    async def workers_with(self, weights: WeightsRef) -> AsyncIterator[None]:
        """The rollout workers, all with one version, for the time of the block; in turn."""
        async with self._workers:
            if self._loaded != weights.version:
                await self._sync(weights)
            yield

    async def _roll_out(self, step: int, weights: WeightsRef) -> RolledOut:
        """Generate and score every shard; a shard is scored when its own generation ends, and the
        workers are free for the next step when the last one's does."""
        session = self._session
        generating: list[asyncio.Task[GenerationRef]] = []
        scoring: list[asyncio.Task[RewardRef]] = []
        try:
            async with self.workers_with(weights):
                batch = await committed(get_batch, session, step=step)
                shards = shard_bounds(batch.num_problems, session.config.num_shards)
                for shard in range(len(shards)):
                    generating.append(asyncio.create_task(self._generate(batch, shard, weights)))
                    scoring.append(asyncio.create_task(self._score(step, shard, generating[-1])))
                await asyncio.gather(*generating)
            return RolledOut(batch, await asyncio.gather(*scoring))
        finally:
            await drop([*generating, *scoring])

    async def _generate(self, batch: BatchRef, shard: int, weights: WeightsRef) -> GenerationRef:
        place: dict[str, Any] = {"step": batch.step, "shard": shard}
        return await committed(
            generate, self._session, **place, batch=opaque(batch), weights=opaque(weights)
        )

    async def _score(
        self, step: int, shard: int, generating: asyncio.Task[GenerationRef]
    ) -> RewardRef:
        place: dict[str, Any] = {"step": step, "shard": shard}
        generation = await generating
        return await committed(reward, self._session, **place, generation=opaque(generation))

    async def _sync(self, weights: WeightsRef) -> None:
        """Bring every rollout worker that is ready to a published version."""
        session = self._session
        self._loaded = None
        timings = await asyncio.gather(
            *(
                sync_weights(session, weights.version, worker, opaque(weights))
                for worker in session.compute.ready_workers("rollout")
            )
        )
        self._recorder.timing(*timings)
        self._loaded = weights.version


async def drop(tasks: Iterable[asyncio.Task[Any]]) -> None:
    """Cancel what is not done and wait until it has ended."""
    everything = list(tasks)
    for task in everything:
        task.cancel()
    await asyncio.gather(*everything, return_exceptions=True)
