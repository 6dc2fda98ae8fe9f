"""The flow's side of workers on a Ray cluster: a bridge each, in pools like those of local ones."""

from __future__ import annotations

import asyncio
import logging
import time
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from mortal_steps.compute.base import Role, WorkerSpec
from mortal_steps.compute.local_container import LocalContainer
from mortal_steps.compute.placement import gpus_per_engine
from mortal_steps.compute.pool import Pool
from mortal_steps.errors import ComputeError, WorkerLostError
from mortal_steps.places.ray.node import Orders, this_mortal
from mortal_steps.runs.lease import Lease
from mortal_steps.runs.recipe_of import resume_argument
from mortal_steps.runs.run import Run
from mortal_steps.runs.starts import give_number
from mortal_steps.runs.waits import note_wait
from mortal_steps.system.frames import Answer, Request

logger = logging.getLogger(__name__)

BRIDGE = "mortal_steps.places.ray.bridge:Bridge"
LOOK_EVERY_S = 1.0
ANSWERS_WITHIN_S = 120.0
"""Seconds that a bridge may take to start and to look for a node once. Ray tries for 20 s to reach
a head that is gone."""
CLOSE_GRACE_S = 6.0
"""Seconds that a bridge may take to have its worker ended; whatever it leaves, Ray ends."""


class RayContainer(LocalContainer):
    """One worker on the cluster: the process here is its bridge."""

    def __init__(
        self, name: str, spec: WorkerSpec, run: Run, lease: Lease, takes: Mapping[str, Any]
    ) -> None:
        """`takes`: arguments of the bridge for what the worker takes of a node."""
        self._ray = run.config.compute.ray
        bridge = WorkerSpec(factory=BRIDGE, kwargs={}, python=self._ray.python)
        logs = run.store.path("logs/cluster").absolute()
        super().__init__(name, bridge, 0, run.working_dir(), logs, lease.filenos())
        self._run, self._lease = run, lease
        self._takes = {**takes, "address": self._ray.address}
        devices = () if takes["gpu"] else ("",)  # Ray hides only GPUs that others have
        self._worker = replace(spec, devices=devices, preload=())

    async def call(self, method: str, payload: Mapping[str, Any], label: str) -> Any:
        """Return the result of the method. Raises what `Compute.call` does, `LeaseLostError`, and
        `ComputeError` if the cluster cannot be used or has had no room for `wait_s`."""
        self._lease.check()
        order = {"method": method, "payload": payload, "label": label}
        longest = self._ray.call_timeout_s
        async with self._starting:
            if self.process is None:
                await self._start()
        try:
            async with asyncio.timeout(longest):
                answer: Answer = await super().call("call", order, label)
        except TimeoutError:
            await super().close(grace_s=0.0)
            why = f"{self.name} has not answered {label} for {longest:g} s"
            answer = Answer(
                number=0, error=WorkerLostError(f"{why} (compute.ray.call_timeout_s); it is ended")
            )
        if isinstance(answer.error, WorkerLostError) and self.on_lost is not None:
            self.on_lost()
        if answer.error is not None:
            raise answer.error
        return answer.value

    async def close(self, grace_s: float = CLOSE_GRACE_S) -> None:
        await super().close(grace_s)

    async def _start(self) -> None:
        try:
            await self._wait_for_node()
        except BaseException:
            await super().close(grace_s=0.0)
            raise
        finally:
            note_wait(self._run.store, self.name, None)
        self._takes["first"] = False

    async def _wait_for_node(self) -> None:
        longest, said = self._ray.wait_s, ""
        deadline = time.monotonic() + longest
        while (waits := await self._place()) is not None:
            if waits != said:
                logger.warning("%s waits: %s", self.name, waits)
            said = waits
            note_wait(self._run.store, self.name, waits)
            if time.monotonic() > deadline:
                raise ComputeError(
                    f"{self.name} has waited for {longest:g} s (compute.ray.wait_s): {waits}. "
                    f"`mortal resume {resume_argument(self._run.store.root)}` continues the run"
                )
            await asyncio.sleep(LOOK_EVERY_S)

    async def _place(self) -> str | None:
        """Return None if the worker has a node, otherwise what it waits for."""
        try:
            async with asyncio.timeout(ANSWERS_WITHIN_S):
                return await self._ask_for_node()
        except WorkerLostError as lost:  # Ray's core ends the bridge where it loses the head
            return str(lost)
        except TimeoutError:
            await super().close(grace_s=0.0)
            return f"its bridge has not answered for {ANSWERS_WITHIN_S:g} s; another one is started"

    async def _ask_for_node(self) -> str | None:
        if self.process is None:
            self._lease.check()
            self._spec = replace(self._spec, kwargs={"orders": self._order(), **self._takes})
            await super()._start()
        waits: str | None = await self._ask_bridge("place")
        if waits is None and self._takes["first"]:
            self._warn_of_idle(await self._ask_bridge("kinds_of_gpu"))
        return waits

    async def _ask_bridge(self, method: str) -> Any:
        number = next(self._numbers)
        return await self._ask(number, Request(number=number, method=method, payload={}))

    def _warn_of_idle(self, kinds: Sequence[str]) -> None:
        for role in ("actor", "rollout"):
            if kinds and getattr(self._ray, role) is None:
                logger.warning(
                    "%s computes on a CPU, and the cluster has GPUs (%s): compute.ray.%s names a "
                    "kind for it",
                    *(role, ", ".join(kinds), role),
                )

    def _order(self) -> Orders:
        """Return the orders for this start of the worker."""
        run = self._run
        orders = Orders(
            worker=self.name,
            number=0,
            nonce=uuid.uuid4().hex,
            mortal=this_mortal(),
            run_dir=run.store.root.absolute(),
            working_dir=run.working_dir(),
            spec=self._worker,
        )
        return replace(orders, number=give_number(run.store, orders.numbers, orders.nonce))


def ray_pools(run: Run, specs: Mapping[Role, WorkerSpec], lease: Lease) -> dict[Role, Pool]:
    """Return pools of the workers on the cluster, none of them started. Rewards run beside the
    flow."""
    ray, ranks = run.config.compute.ray, run.config.training.ranks
    sizes: dict[Role, tuple[int, int]] = {
        "actor": (ranks, ranks * specs["actor"].threads),
        "rollout": (gpus_per_engine(run.config.rollout), specs["rollout"].threads),
    }
    pools = {}
    for role, (gpus, cpus) in sizes.items():
        takes = {"gpu": getattr(ray, role), "gpus": gpus, "cpus": cpus, "first": role == "actor"}
        spec, count = specs[role], range(specs[role].count)
        containers = [RayContainer(f"{role}-{n}", spec, run, lease, takes) for n in count]
        pools[role] = Pool(containers, spec.prepare)
    return pools
