"""The process that Ray starts for a worker, on a node of the cluster. Imports no Ray.

An order carries a number, which each start of a worker gets anew (compute.py):

    RUN/cluster/actor-0/3    the third start of this worker: a random text

The flow writes the file before it starts the bridge, and the node reads it: it has the flow's file
system before it, or it does not begin. A node that finds a later number has been replaced, although
nobody could end it, as on a machine that did not answer for a while. It ends itself. So there is
one actor that writes, and a flow that another one has taken the run over from asks in vain.
"""

from __future__ import annotations

import asyncio
import logging
import os
import platform
import socket
import time
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

import mortal_steps
from mortal_steps.compute.base import WorkerSpec
from mortal_steps.compute.local_container import LocalContainer
from mortal_steps.errors import LeaseLostError
from mortal_steps.store import RunStore
from mortal_steps.system.faults import as_mortal_error
from mortal_steps.system.frames import Answer
from mortal_steps.system.sources import sources_sha256

logger = logging.getLogger(__name__)

FENCES = "cluster"
"""Folder of a run directory with a folder for each worker."""
LOOK_EVERY_S = 2.0
SEEN_S = 10.0
"""Seconds that a shared file system may take to show a new file on another machine."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Orders:
    """What a node is told of its worker."""

    worker: str
    """Such as `rollout-0`."""
    number: int
    """Of this start of the worker."""
    nonce: str
    """What the file of this number holds."""
    run_dir: Path
    working_dir: Path
    versions: Mapping[str, str]
    """Of MORTAL, Python and Ray on the flow's machine; the flow knows of MORTAL's alone."""
    spec: WorkerSpec

    @property
    def fence(self) -> str:
        return f"{FENCES}/{self.worker}"

    def problem_here(self) -> str | None:
        """Say what is wrong with this machine; None if the worker can be here."""
        here = f"node {socket.gethostname()}"
        if other := [
            f"{name} {there}, the flow's machine {self.versions[name]}"
            for name, there in versions().items()
            if there != self.versions[name]
        ]:
            return f"{here} has {'; '.join(other)}: install the same on all nodes"
        if not self._sees_run_dir():
            return (
                f"{here} does not have the run directory {self.run_dir} of the flow's machine: "
                "runs_dir must lie on a file system that all nodes share, at the same path"
            )
        if not self.working_dir.is_dir():
            return (
                f"{here} has no {self.working_dir}, the folder in which the run began: put it on "
                "the file system that all nodes share"
            )
        return None

    def _sees_run_dir(self) -> bool:
        file, deadline = self.run_dir / self.fence / str(self.number), time.monotonic() + SEEN_S
        while not file.exists():
            if time.monotonic() > deadline:
                return False
            time.sleep(0.5)
        return file.read_text() == self.nonce


def versions() -> dict[str, str]:
    """Return what must be the same on both sides."""
    return {
        "mortal": this_mortal(),
        "Python": platform.python_version(),
        "Ray": version("ray"),
    }


def this_mortal() -> str:
    return f"{mortal_steps.__version__} ({sources_sha256()[:12]})"


class Node:
    """Holds a worker in a process of its own."""

    def __init__(self, orders: Orders) -> None:
        logging.basicConfig(level=logging.INFO)
        self._orders = orders
        self._store = RunStore(orders.run_dir)
        self._container = LocalContainer(
            orders.worker, orders.spec, 0, orders.working_dir, orders.run_dir / "logs"
        )

    async def problem(self) -> str | None:
        """See `Orders.problem_here`. If there is none, this begins to look for later numbers."""
        found = self._orders.problem_here()
        if found is None:
            self._watching = asyncio.create_task(self._end_when_replaced())
        return found

    async def call(self, method: str, payload: Mapping[str, Any], label: str) -> Answer:
        """Return what came of the call of the worker."""
        try:
            self._check_number()
            value = await self._container.call(method, payload, label)
        except Exception as error:  # noqa: BLE001 - the boundary: any error travels to the caller
            return Answer(number=0, error=as_mortal_error(error))
        return Answer(number=0, value=value)

    async def close(self) -> None:
        await self._container.close()

    def _check_number(self) -> None:
        newest = max(number for number, _ in self._store.numbered(self._orders.fence))
        if newest > self._orders.number:
            raise LeaseLostError(
                f"{self._orders.worker} was started anew (number {newest}); this is start "
                f"{self._orders.number}, which does nothing more"
            )

    async def _end_when_replaced(self) -> None:
        while True:
            await asyncio.sleep(LOOK_EVERY_S)
            try:
                self._check_number()
            except LeaseLostError as error:
                logger.error("%s", error)
                os._exit(1)
