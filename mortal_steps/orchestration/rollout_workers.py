"""The rollout workers of a run, as a whole: which policy version they sample with."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator

from mortal_steps.orchestration.session import Session
from mortal_steps.orchestration.stages import Stages
from mortal_steps.report.recorder import Recorder
from mortal_steps.types import PolicyVersion, WeightsRef


class RolloutWorkers:
    """Samples with one version at a time, for whoever has its turn."""

    def __init__(self, session: Session, stages: Stages, recorder: Recorder) -> None:
        self._session = session
        self._stages = stages
        self._recorder = recorder
        self._turn = asyncio.Lock()
        self._loaded: PolicyVersion | None = None
        self._loads_with_shards = session.config.compute.loads_with_shards

    @contextlib.asynccontextmanager
    async def sampling_with(self, weights: WeightsRef) -> AsyncIterator[None]:
        """All of them, with this version, for the time of the block; in turn."""
        async with self._turn:
            if self._loaded != weights.version and not self._loads_with_shards:
                await self._sync(weights)
            yield

    async def _sync(self, weights: WeightsRef) -> None:
        """Bring every rollout worker that is ready to a published version."""
        self._loaded = None
        timings = await asyncio.gather(
            *(
                self._stages.sync_weights(self._session, weights, worker)
                for worker in self._session.compute.ready_workers("rollout")
            )
        )
        self._recorder.timing(*timings)
        self._loaded = weights.version
