"""`Compute` on Modal: each worker is a pool of its own, of one container of a deployed class."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import logging
import time
from collections.abc import AsyncIterator, Callable, Mapping
from pathlib import Path
from typing import Any

from modal import exception

from mortal_steps.compute.base import CallKey, Compute, Role
from mortal_steps.compute.modal import volume_lease
from mortal_steps.compute.modal.calls import Calls
from mortal_steps.compute.modal.deployed import check_deployed, worker_of
from mortal_steps.compute.modal.meter import Meter
from mortal_steps.compute.modal.mirror import Mirror
from mortal_steps.compute.modal.orders import Order, Settings
from mortal_steps.compute.modal.project import project_files, share_folder, share_project
from mortal_steps.compute.modal.release import this_release
from mortal_steps.compute.modal.retry import call_with_retries
from mortal_steps.compute.modal.volume import RunsVolume
from mortal_steps.compute.modal.volume_lease import ModalLease
from mortal_steps.compute.modal.volume_runs import bring_batches_here, bring_here
from mortal_steps.compute.pool import Pool
from mortal_steps.config import RunConfig
from mortal_steps.errors import LeaseLostError, WorkerLostError
from mortal_steps.store import RunStore

logger = logging.getLogger(__name__)

PREPARED_BY: Mapping[Role, str] = {"rollout": "start"}
"""The method that makes a role's workers ready, where they have one."""

TOLD_BEFORE = {"checkpoint", "save_final"}
"""Methods that let older states go: the Volume is told where the run stands before them, or whoever
goes on from there might miss what they remove."""

LAST_WINDOW_S = 2
"""How long containers stay idle once the run has ended: what Modal allows least."""


class ModalCompute:
    """Roles with `pools` are in Modal containers; `beside` serves the other ones here."""

    def __init__(
        self, pools: Mapping[Role, Pool[ModalContainer]], beside: Compute, line: Line
    ) -> None:
        self._pools = pools
        self._beside = beside
        self._line = line

    async def start(self, role: Role) -> None:
        """See `Compute.start`."""
        if role in self._pools:
            await self._pools[role].first_ready()
        else:
            await self._beside.start(role)

    async def call(
        self, role: Role, method: str, *, key: CallKey, worker: int | None = None, **payload: Any
    ) -> Any:
        """See `Compute.call`."""
        if role not in self._pools:
            answer = await self._beside.call(role, method, key=key, worker=worker, **payload)
            self._line.mirror.take_along(answer)
            return answer
        return await self._pools[role].call(method, payload, key.label, worker)

    def ready_workers(self, role: Role) -> list[int]:
        """See `Compute.ready_workers`."""
        if role in self._pools:
            return self._pools[role].ready_workers()
        return self._beside.ready_workers(role)

    def spent(self) -> float:
        """See `Compute.spent`."""
        return self._line.meter.spent

    async def close(self) -> None:
        """See `Compute.close`."""
        pools = self._pools.values()
        await asyncio.gather(self._beside.close(), *(pool.close() for pool in pools))


class Line:
    """What every container of a run is called through."""

    def __init__(
        self, settings: Settings, store: RunStore, volume: RunsVolume, held: ModalLease
    ) -> None:
        options = settings.config.compute.modal
        self.mirror = Mirror(volume, store)
        self.calls = Calls(store, options.call_timeout_s)
        self.meter = Meter(store, settings.config.compute)
        self._lease = held
        self._release = this_release()
        self._volume_name = volume.name
        # Under a name of its own for each, for a call of an earlier flow may still name another.
        said = settings.config.model_dump_json() + str(settings.project_sha256)
        digest = hashlib.sha256(said.encode()).hexdigest()
        self.settings = store.write_record(f"settings/{digest[:12]}.json", settings, Settings)
        """Record of them, which the Volume is to hold."""

    @property
    def is_lost(self) -> bool:
        """Whether another machine drives the run now: what is on Modal is that one's."""
        return self._lease.is_lost

    async def call(
        self, name: str, role: Role, worker: Any, key: str, label: str, method: str, payload: Any
    ) -> Any:
        """What the worker of this name gives; what it refers to is here when it returns."""
        await self._lease.check()
        if method in TOLD_BEFORE:
            await self.mirror.push()
        order = Order(
            release=self._release,
            volume=self._volume_name,
            lease=self._lease.number,
            settings=self.settings,
            role=role,
            method=method,
            payload=payload,
            label=label,
            files=await self.mirror.load(payload),
        )
        began = time.monotonic()
        try:
            outcome = await self.calls.outcome(key, worker.call, order)
        except WorkerLostError:
            self.meter.lost(name, role, label, time.monotonic() - began)
            raise
        self.meter.answered(name, role, label, outcome)
        if isinstance(outcome.error, LeaseLostError):
            self._lease.note_lost(outcome.error)
        if outcome.error is not None:
            raise outcome.error
        await self.mirror.pull(payload, outcome)
        return outcome.value


class ModalContainer:
    """One worker, in whichever container Modal gives it."""

    def __init__(self, role: Role, number: int, worker: Any, line: Line) -> None:
        self.name = f"{role}-{number}"
        self.on_lost: Callable[[], None] | None = None
        self._role = role
        self._worker = worker
        self._line = line

    async def call(self, method: str, payload: Mapping[str, Any], label: str) -> Any:
        """See `Compute.call`."""
        # A shard is any worker's; making one ready is its own.
        key = f"{self._role}/{label}" if "/" in label else f"{self.name}/{label}"
        try:
            return await self._line.call(
                self.name, self._role, self._worker, key, label, method, payload
            )
        except WorkerLostError:
            if self.on_lost is not None:
                self.on_lost()
            raise

    async def keep_idle(self, seconds: int) -> None:
        """How long the container stays when it has nothing to do."""
        update = self._worker.call.autoscaler.update.aio
        await call_with_retries(self.name, lambda: update(scaledown_window=seconds))

    async def close(self) -> None:
        """Let the container go soon, unless it works for another machine now."""
        if self._line.is_lost:
            return
        try:
            await self._worker.call.autoscaler.update.aio(scaledown_window=LAST_WINDOW_S)
        except (exception.Error, OSError) as error:
            logger.warning(
                "%s cannot be ended now; it ends when it has been idle: %s", self.name, error
            )


@contextlib.asynccontextmanager
async def modal_compute(
    settings: Settings,
    store: RunStore,
    beside: Compute,
    on_stop: Callable[[str], None] | None = None,
) -> AsyncIterator[ModalCompute]:
    """The run's workers on Modal, for the time of the block; none is started yet. `on_stop` is told
    who asks the run to stop by `mortal stop`.

    At its beginning the run directory here stands where the one on the Volume does. At its end what
    is under way is cancelled, every container goes, and the Volume knows where the run stands; none
    of it if another machine has taken the run over.

    Raises `ComputeError` where Modal cannot be used, and `StoreError` if a process on another
    machine drives the run.
    """
    config, volume = settings.config, RunsVolume(settings.config.compute.modal.volume)
    run_id = store.root.name
    await check_deployed(config)
    held = await volume_lease.acquire(
        volume, run_id, after=await volume_lease.newest_fence(volume, run_id)
    )
    held.on_stop = on_stop
    volume = RunsVolume(volume.name, may_write=held.check)
    try:
        await volume_lease.put_up_fence(volume, held, run_id)
        # Whoever held it last may have gone on since the run was opened here.
        await bring_here(volume, store)
        await bring_batches_here(volume, store)
        line = Line(settings, store, volume, held)
        for folder, where in settings.folders.items():
            await share_folder(volume, Path(folder), where)
        if settings.project_sha256 is not None:
            await share_project(volume, run_id, project_files(config))
        await line.mirror.begin()
        await line.mirror.push(line.settings)
        compute = await _compute(config, store, line, beside)
        try:
            async with line.mirror.keeping_up():
                yield compute
        finally:
            await _end(compute, line, held)
    finally:
        await held.release()


async def _compute(config: RunConfig, store: RunStore, line: Line, beside: Compute) -> ModalCompute:
    def container(role: Role, number: int) -> ModalContainer:
        return ModalContainer(role, number, worker_of(config, role, store.root.name, number), line)

    pools = {
        role: Pool([container(role, n) for n in range(count)], PREPARED_BY.get(role))
        for role, count in num_containers(config).items()
    }
    window = config.compute.modal.scaledown_window_s
    everyone = [one for pool in pools.values() for one in pool.containers]
    await asyncio.gather(*(one.keep_idle(window) for one in everyone))
    return ModalCompute(pools, beside, line)


def num_containers(config: RunConfig) -> dict[Role, int]:
    """Of each role that is on Modal."""
    counts: dict[Role, int] = {"actor": 1, "rollout": config.num_rollout_workers}
    if config.compute.scores_in_a_container:
        counts["reward"] = config.rewards.num_reward_workers
    return counts


async def _end(compute: ModalCompute, line: Line, held: ModalLease) -> None:
    with contextlib.suppress(LeaseLostError):  # `is_lost` tells from now on
        await held.check()
    async with contextlib.AsyncExitStack() as last:  # each of them, whatever the others raise
        if not held.is_lost:
            last.push_async_callback(line.mirror.push)
        last.callback(line.meter.ended, LAST_WINDOW_S)
        last.push_async_callback(compute.close)
        if not held.is_lost:
            last.push_async_callback(line.calls.cancel_all)
