"""`Compute` on Modal: each worker is a pool of its own, of one container of a deployed class."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import logging
import time
from collections.abc import AsyncIterator, Callable, Mapping
from typing import Any

from modal import exception

from mortal_steps.compute.base import Role
from mortal_steps.compute.pool import Compute, Pool
from mortal_steps.config import ComputeConfig
from mortal_steps.errors import LeaseLostError, WorkerLostError
from mortal_steps.places.modal.calls import Calls
from mortal_steps.places.modal.deployed import check_deployed, worker_of
from mortal_steps.places.modal.detached import settings_of, share
from mortal_steps.places.modal.files import volume_lease
from mortal_steps.places.modal.files.mirror import Mirror
from mortal_steps.places.modal.files.volume import RunsVolume
from mortal_steps.places.modal.files.volume_lease import ModalLease
from mortal_steps.places.modal.files.volume_runs import download_batches, download_run
from mortal_steps.places.modal.messages import CallRequest, Settings
from mortal_steps.places.modal.meter import Meter
from mortal_steps.places.modal.release import this_release
from mortal_steps.places.modal.retry import call_with_retries
from mortal_steps.runs.run import Run

logger = logging.getLogger(__name__)

PREPARED_BY: Mapping[Role, str] = {"rollout": "start"}
"""The method that makes a role's workers ready, where they have one."""

PUSHED_BEFORE = {"checkpoint", "save_final"}
"""Methods that let older states go: the Volume is told where the run stands before them, or whoever
goes on from there might miss what they remove."""

LAST_WINDOW_S = 2
"""How long containers stay idle once the run has ended: what Modal allows least."""


class ModalCompute(Compute):
    """Roles with `pools` are in Modal containers, the others in those of `local`."""

    def __init__(self, pools: Mapping[Role, Pool], local: Compute, run: RunOnModal) -> None:
        super().__init__({**local.pools, **pools})
        self._is_remote = pools.keys()
        self._run = run

    async def call(
        self, role: Role, method: str, *, key: str, worker: int | None = None, **payload: Any
    ) -> Any:
        answer = await super().call(role, method, key=key, worker=worker, **payload)
        if role not in self._is_remote:
            self._run.mirror.take_along(answer)
        return answer

    def spent(self) -> float:
        return self._run.meter.spent


class RunOnModal:
    """What every container of a run is called with."""

    def __init__(self, run: Run, volume: RunsVolume, lease: ModalLease) -> None:
        store, compute = run.store, run.config.compute
        self.mirror = Mirror(volume, store)
        self.calls = Calls(store, compute.modal.call_timeout_s)
        self.meter = Meter(store, compute, run.plan.place.actor_containers)
        self.lease = lease
        self.release = this_release()
        self.volume_name = volume.name
        # Under a name of its own for each, for a call of an earlier flow may still name another.
        settings = settings_of(run)
        content = settings.config.model_dump_json() + str(settings.project_sha256)
        digest = hashlib.sha256(content.encode()).hexdigest()
        self.settings = store.write_record(f"settings/{digest[:12]}.json", settings, Settings)
        """Record of them, which the Volume is to hold."""


class ModalContainer:
    """One worker, in whichever container Modal gives it."""

    def __init__(self, role: Role, number: int, worker: Any, run: RunOnModal) -> None:
        self.name = f"{role}-{number}"
        self.on_lost: Callable[[], None] | None = None
        self._role = role
        self._worker = worker
        self._run = run

    async def call(self, method: str, payload: Mapping[str, Any], label: str) -> Any:
        """Call the worker; what its answer refers to is on this machine when this returns."""
        try:
            return await self._call(method, payload, label)
        except WorkerLostError:
            if self.on_lost is not None:
                self.on_lost()
            raise

    async def _call(self, method: str, payload: Mapping[str, Any], label: str) -> Any:
        run, role = self._run, self._role
        await run.lease.check()
        if method in PUSHED_BEFORE:
            await run.mirror.push()
        request = CallRequest(
            release=run.release,
            volume=run.volume_name,
            lease=run.lease.number,
            settings=run.settings,
            role=role,
            method=method,
            payload=payload,
            label=label,
            files=await run.mirror.load(payload),
        )
        # A shard is any worker's; making one ready is its own.
        key = f"{role}/{label}" if "/" in label else f"{self.name}/{label}"
        began = time.monotonic()
        try:
            result = await run.calls.result(key, self._worker.call, request)
        except WorkerLostError:
            run.meter.lost(self.name, role, label, time.monotonic() - began)
            raise
        run.meter.answered(self.name, role, label, result)
        if isinstance(result.error, LeaseLostError):
            run.lease.note_lost(result.error)
        if result.error is not None:
            raise result.error
        await run.mirror.pull(payload, result)
        return result.value

    async def keep_idle(self, seconds: int) -> None:
        """How long the container stays when it has nothing to do."""
        update = self._worker.call.autoscaler.update.aio
        await call_with_retries(self.name, lambda: update(scaledown_window=seconds))

    async def close(self) -> None:
        """Let the container go soon, unless it works for another machine now."""
        if self._run.lease.is_lost:
            return
        try:
            await self._worker.call.autoscaler.update.aio(scaledown_window=LAST_WINDOW_S)
        except (exception.Error, OSError) as error:
            logger.warning(
                "%s cannot be ended now; it ends when it has been idle: %s", self.name, error
            )


@contextlib.asynccontextmanager
async def modal_compute(
    run: Run, local: Compute, on_stop: Callable[[str], None] | None = None
) -> AsyncIterator[ModalCompute]:
    """Yield the run's workers on Modal, for the time of the block; none is started yet. `on_stop`
    is called with who asks the run to stop by `mortal stop`.

    At its beginning the run directory here stands where the one on the Volume does. At its end what
    is under way is cancelled, every container goes, and the Volume knows where the run stands; none
    of it if another machine has taken the run over.

    Raises `ComputeError` where Modal cannot be used, and `StoreError` if a process on another
    machine drives the run.
    """
    config, store, run_id = run.config, run.store, run.info.run_id
    volume = RunsVolume(config.compute.modal.volume)
    await check_deployed(run.plan.place)
    lease = await volume_lease.acquire(
        volume, run_id, after=await volume_lease.newest_fence(volume, run_id)
    )
    lease.on_stop = on_stop
    volume = RunsVolume(volume.name, may_write=lease.check)
    try:
        await volume_lease.put_up_fence(volume, lease, run_id)
        # Whoever held it last may have gone on since the run was opened here.
        await download_run(volume, store)
        await download_batches(volume, store)
        on_modal = RunOnModal(run, volume, lease)
        await share(volume, run, on_modal.mirror)
        await on_modal.mirror.push(on_modal.settings)
        containers = _containers(run, on_modal)
        window = config.compute.modal.scaledown_window_s
        everyone = [one for role in containers.values() for one in role]
        await asyncio.gather(*(one.keep_idle(window) for one in everyone))
        pools = {role: Pool(those, PREPARED_BY.get(role)) for role, those in containers.items()}
        compute = ModalCompute(pools, local, on_modal)
        try:
            async with on_modal.mirror.keeping_up():
                yield compute
        finally:
            await _end(compute, on_modal)
    finally:
        await lease.release()


def _containers(run: Run, on_modal: RunOnModal) -> dict[Role, list[ModalContainer]]:
    config = run.config

    def container(role: Role, number: int) -> ModalContainer:
        worker = worker_of(
            config.compute,
            config.rollout,
            role,
            run.info.run_id,
            number,
            together=role == "actor" and run.plan.place.actor_containers > 1,
            scores_with=run.plan.scoring.needs_engine,
        )
        return ModalContainer(role, number, worker, on_modal)

    counts = num_containers(
        config.compute, config.num_rollout_workers, config.rewards.num_reward_workers
    )
    return {role: [container(role, n) for n in range(count)] for role, count in counts.items()}


def num_containers(compute: ComputeConfig, rollout: int, reward: int) -> dict[Role, int]:
    """Return how many containers each role has that is on Modal, of a run with so many workers."""
    counts: dict[Role, int] = {"actor": 1, "rollout": rollout}
    return counts | {"reward": reward} if compute.scores_in_a_container else counts


async def _end(compute: ModalCompute, run: RunOnModal) -> None:
    lease = run.lease
    with contextlib.suppress(LeaseLostError):  # `is_lost` tells from now on
        await lease.check()
    async with contextlib.AsyncExitStack() as last:  # each of them, whatever the others raise
        if not lease.is_lost:
            last.push_async_callback(run.mirror.push)
        last.callback(run.meter.ended, LAST_WINDOW_S)
        last.push_async_callback(compute.close)
        if not lease.is_lost:
            last.push_async_callback(run.calls.cancel_all)
