"""The flow's side of workers on a Ray cluster: a bridge each, in a pool like local ones."""

from __future__ import annotations

import asyncio
import logging
import time
import uuid
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from mortal_steps.compute.base import Role, WorkerSpec
from mortal_steps.compute.cluster.node import Orders, this_mortal
from mortal_steps.compute.local_container import LocalContainer
from mortal_steps.compute.placement import gpus_per_engine
from mortal_steps.compute.pool import Pool
from mortal_steps.errors import ComputeError, WorkerLostError
from mortal_steps.runs.lease import Lease
from mortal_steps.runs.run import Run
from mortal_steps.runs.waits import note_wait
from mortal_steps.store.files import writing
from mortal_steps.system.frames import Answer, Request

logger = logging.getLogger(__name__)

BRIDGE = "mortal_steps.compute.cluster.bridge:Bridge"
LOOK_EVERY_S = 1.0
CLOSE_GRACE_S = 6.0
"""Seconds that a bridge may take to have its worker ended; whatever it leaves, Ray ends."""


class RayContainer(LocalContainer):
    """One worker on the cluster: the process here is its bridge."""

    def __init__(
        self, name: str, spec: WorkerSpec, run: Run, lease: Lease, needs: Mapping[str, Any]
    ) -> None:
        """`needs` are arguments of the bridge that say what the worker takes of a node."""
        self._ray = run.config.compute.ray
        bridge = WorkerSpec(factory=BRIDGE, kwargs={}, python=self._ray.python)
        logs = run.store.path("logs/cluster").absolute()
        super().__init__(name, bridge, 0, run.working_dir(), logs, lease.filenos())
        self._run, self._lease = run, lease
        self._needs = {**needs, "address": self._ray.address}
        self._worker = replace(spec, devices=(), preload=())

    async def call(self, method: str, payload: Mapping[str, Any], label: str) -> Any:
        """Return the result of the method. Raises what `Compute.call` does, `LeaseLostError`, and
        `ComputeError` if the cluster cannot be used, or has no room within `wait_s`."""
        self._lease.check()
        ordered = {"method": method, "payload": payload, "label": label}
        try:
            async with asyncio.timeout(self._ray.call_timeout_s):
                answer: Answer = await super().call("call", ordered, label)
        except TimeoutError:
            await self.close(grace_s=0.0)
            self._tell_lost()
            raise WorkerLostError(
                f"{self.name} has not answered {label} for {self._ray.call_timeout_s:g} s "
                "(compute.ray.call_timeout_s)"
            ) from None
        if isinstance(answer.error, WorkerLostError):
            self._tell_lost()
        if answer.error is not None:
            raise answer.error
        return answer.value

    async def close(self, grace_s: float = CLOSE_GRACE_S) -> None:
        await super().close(grace_s)

    def _tell_lost(self) -> None:
        if self.on_lost is not None:
            self.on_lost()

    async def _start(self) -> None:
        try:
            await self._wait_for_node()
        except BaseException:
            await super().close(grace_s=0.0)
            raise
        finally:
            note_wait(self._run.store, self.name, None)
        self._needs["first"] = False

    async def _wait_for_node(self) -> None:
        deadline, said = time.monotonic() + self._ray.wait_s, None
        while (waits := await self._place()) is not None:
            if waits != said:
                logger.warning("%s waits: %s", self.name, waits)
            said = waits
            note_wait(self._run.store, self.name, waits)
            if time.monotonic() > deadline:
                raise ComputeError(
                    f"{self.name} has waited for {self._ray.wait_s:g} s (compute.ray.wait_s): "
                    f"{waits}. `mortal resume {self._run.info.run_id}` continues the run"
                )
            await asyncio.sleep(LOOK_EVERY_S)

    async def _place(self) -> str | None:
        """Return None if the worker has a node, otherwise what it waits for."""
        try:
            if self.process is None:
                self._lease.check()
                self._spec = replace(self._spec, kwargs={"orders": self._order(), **self._needs})
                await super()._start()
            number = next(self._numbers)
            request = Request(number=number, method="place", payload={})
            waits: str | None = await self._ask(number, request)
        except WorkerLostError as lost:  # Ray's core ends it where it loses the head
            return str(lost)
        return waits

    def _order(self) -> Orders:
        """Give this start of the worker a number; nodes with earlier ones begin nothing more."""
        orders = Orders(
            worker=self.name,
            number=0,
            nonce=uuid.uuid4().hex,
            run_dir=self._run.store.root.absolute(),
            working_dir=self._run.working_dir(),
            versions={"mortal": this_mortal()},
            spec=self._worker,
        )
        number = max((n for n, _ in self._run.store.numbered(orders.fence)), default=0) + 1
        file = self._run.store.path(f"{orders.fence}/{number}")
        with writing(file):
            file.parent.mkdir(parents=True, exist_ok=True)
            with file.open("x") as fence:  # no number is given to two
                fence.write(orders.nonce)
        return replace(orders, number=number)


def ray_pools(run: Run, specs: Mapping[Role, WorkerSpec], lease: Lease) -> dict[Role, Pool]:
    """Return the pools of the run's workers on the cluster; none is started yet. Rewards run beside
    the flow."""
    ray, ranks = run.config.compute.ray, run.config.training.ranks
    engine = gpus_per_engine(run.config.rollout)
    pools: dict[Role, Pool] = {}
    taken: dict[Role, tuple[int, int]] = {"actor": (ranks, ranks), "rollout": (engine, 1)}
    for role, (size, processes) in taken.items():
        spec = specs[role]
        needs = {
            "gpu": ray.gpu_of(role),
            "gpus": size,
            "cpus": spec.threads * processes,
            "first": role == "actor",
        }
        numbers = range(spec.count)
        containers = [RayContainer(f"{role}-{n}", spec, run, lease, dict(needs)) for n in numbers]
        pools[role] = Pool(containers, spec.prepare)
    return pools
