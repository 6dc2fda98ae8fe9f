"""`Compute` on Modal: each worker is a pool of its own, of one container of a deployed class."""

from __future__ import annotations

import asyncio
import hashlib
import logging
from collections.abc import Callable, Mapping
from typing import Any

import modal
from modal import exception

from mortal_steps.compute.base import CallKey, Role
from mortal_steps.compute.local import LocalCompute
from mortal_steps.compute.modal.calls import Calls
from mortal_steps.compute.modal.host import Order, Settings
from mortal_steps.compute.modal.mirror import Mirror
from mortal_steps.compute.pool import Pool
from mortal_steps.config.gpus import modal_gpu
from mortal_steps.errors import WorkerLostError
from mortal_steps.store import RunStore
from mortal_steps.types import FileRef

logger = logging.getLogger(__name__)

LAST_WINDOW_S = 2
"""How long containers stay idle once the run has ended: what Modal allows least."""


class ModalCompute:
    """Actor and rollout workers in Modal containers; `beside` serves the other roles here.

    `store` is this machine's run directory; the Volume holds another, in which containers work.
    """

    def __init__(self, settings: Settings, store: RunStore, *, beside: LocalCompute) -> None:
        config = settings.config
        self._engine = config.rollout.engine
        volume = modal.Volume.from_name(config.compute.modal.volume, version=2)
        self._beside = beside
        self._mirror = Mirror(volume, store)
        self._calls = Calls(store, config.compute.modal.deadline_s)
        self._settings = _commit_settings(store, settings)
        self._run_id = store.root.name
        self._config = config.compute.modal
        rollouts = range(config.rollout.num_rollout_workers)
        self._pools: dict[Role, Pool[ModalContainer]] = {
            "actor": Pool([self._container("actor", 0)], None),
            "rollout": Pool([self._container("rollout", number) for number in rollouts], "start"),
        }

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
            return await self._beside.call(role, method, key=key, worker=worker, **payload)
        pool = self._pools[role]
        if worker is not None:
            return await pool.containers[worker].call(method, payload, key.label)
        async with pool.taken() as container:
            return await container.call(method, payload, key.label)

    def ready_workers(self, role: Role) -> list[int]:
        """See `Compute.ready_workers`."""
        if role in self._pools:
            return self._pools[role].ready_workers()
        return self._beside.ready_workers(role)

    async def close(self) -> None:
        """End what is under way, let every container go, and bring the run's end to the Volume."""
        await self._calls.cancel_all()
        pools = self._pools.values()
        await asyncio.gather(self._beside.close(), *(pool.close() for pool in pools))
        await self._mirror.push()

    def _container(self, role: Role, number: int) -> ModalContainer:
        options = self._config
        deployed = modal.Cls.from_name(
            options.app, _class_of(role, self._engine), version=options.version
        ).with_options(gpu=modal_gpu(options.actor if role == "actor" else options.rollout))
        worker = deployed(run_id=self._run_id, number=number)
        return ModalContainer(
            f"{role}-{number}",
            worker,
            self._mirror,
            self._calls,
            self._settings,
            options.scaledown_window_s,
        )


class ModalContainer:
    """One worker, in whichever container Modal gives it."""

    def __init__(
        self,
        name: str,
        worker: Any,
        mirror: Mirror,
        calls: Calls,
        settings: FileRef,
        scaledown_window_s: int,
    ) -> None:
        self.name = name
        self.on_lost: Callable[[], None] | None = None
        self._worker = worker
        self._mirror = mirror
        self._calls = calls
        self._settings = settings
        self._scaledown_window_s = scaledown_window_s
        self._used = False

    async def call(self, method: str, payload: Mapping[str, Any], label: str) -> Any:
        """The method's result; what it refers to is here when it returns.

        Raises what `Compute.call` does.
        """
        if not self._used:  # an earlier flow of this run has let the container go
            await self._keep_idle(self._scaledown_window_s)
            self._used = True
        order = Order(settings=self._settings, method=method, payload=payload, label=label)
        await self._mirror.push(order)
        role = self.name.partition("-")[0]
        key = f"{role}/{label}" if "/" in label else f"{self.name}/{label}"
        try:
            answer = await self._calls.outcome(key, self._worker.call, order)
        except WorkerLostError:
            if self.on_lost is not None:
                self.on_lost()
            raise
        await self._mirror.pull(answer)
        return answer

    async def close(self) -> None:
        """Let the container go soon."""
        if self._used:
            try:
                await self._keep_idle(LAST_WINDOW_S)
            except (exception.Error, OSError) as error:
                logger.warning("%s is let go when it has been idle: %s", self.name, error)

    async def _keep_idle(self, seconds: int) -> None:
        await self._worker.call.autoscaler.update.aio(scaledown_window=seconds)


def _class_of(role: Role, engine: str) -> str:
    """The class of deployments/modal_app.py: each has the image of what it samples with."""
    if role == "actor":
        return "ActorWorker"
    return "RolloutWorker" if engine == "vllm" else "TransformersRolloutWorker"


def _commit_settings(store: RunStore, settings: Settings) -> FileRef:
    """Under a name of its own for each, for a call of an earlier flow may still name another."""
    digest = settings.config.model_dump_json().encode()
    name = hashlib.sha256(digest).hexdigest()[:12]
    return store.write_record(f"settings/{name}.json", settings, Settings)
