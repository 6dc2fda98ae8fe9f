"""The rollout workers of a run as a group, and the policy version that they sample with."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator

from mortal_steps.compute.base import CallKey
from mortal_steps.errors import WorkerLostError
from mortal_steps.orchestration.session import Session
from mortal_steps.report.recorder import Recorder
from mortal_steps.types import PolicyVersion, StageTiming, WeightsRef

logger = logging.getLogger(__name__)


class RolloutWorkers:
    """Gives the workers to one user at a time, with one policy version loaded."""

    def __init__(self, session: Session, recorder: Recorder) -> None:
        self._session = session
        self._recorder = recorder
        self._lock = asyncio.Lock()
        self._loaded: PolicyVersion | None = None
        self._loads_with_shards = session.config.compute.loads_with_shards

    @contextlib.asynccontextmanager
    async def sampling_with(self, weights: WeightsRef) -> AsyncIterator[None]:
        """All rollout workers, with this version, for the time of the block; callers take turns.

        The block begins at once. A worker handles its requests in order, so a request to sample
        waits at the worker until it has loaded the version.
        """
        async with self._lock:
            loading = self._load(weights) if self._loaded != weights.version else []
            try:
                yield
                timings = await asyncio.gather(*loading)
            finally:
                for each in loading:
                    each.cancel()
                await asyncio.gather(*loading, return_exceptions=True)
            if timings:
                self._recorder.timing(*timings)
            self._loaded = weights.version
            if self._session.config.rollout.sleep_while_training:
                await self._sleep()

    async def _sleep(self) -> None:
        """Ask all workers to give their memory back, because the actor trains next."""
        self._loaded = None
        ready = self._session.compute.ready_workers("rollout")
        await asyncio.gather(*map(self._put_to_sleep, ready))

    async def _put_to_sleep(self, worker: int) -> None:
        run = self._session.run
        step = run.manifest.step
        key = CallKey(run_id=run.info.run_id, stage="sleep", step=step, index=worker)
        try:
            await self._session.compute.call("rollout", "sleep", key=key, worker=worker)
        except WorkerLostError as error:
            logger.warning("rollout worker %d, which is lost, needs no sleep: %s", worker, error)

    def _load(self, weights: WeightsRef) -> list[asyncio.Task[StageTiming]]:
        """Ask every rollout worker that is ready to load a published version."""
        self._loaded = None
        if self._loads_with_shards:
            return []
        return [
            asyncio.create_task(self._session.sync_weights(weights, worker))
            for worker in self._session.compute.ready_workers("rollout")
        ]
