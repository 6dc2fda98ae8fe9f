"""The process that Ray starts for a worker on a node of the cluster. Imports no Ray.

Each start of a worker has a number, and its orders carry it:

    RUN/cluster/actor-0/3    the third start of this worker: a random text

The flow writes the file, and a node begins only if it reads the same text: it shares the flow's
file system. A node that finds a later number was given up while it could not be ended, like that of
a machine that did not answer for a while. It ends itself, so that one actor alone writes.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import time
from collections.abc import Mapping
from dataclasses import dataclass
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

LOOK_EVERY_S = 2.0
SEEN_WITHIN_S = 10.0
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
    mortal: str
    """MORTAL on the flow's machine; Ray itself compares Python and Ray."""
    run_dir: Path
    working_dir: Path
    spec: WorkerSpec

    @property
    def numbers(self) -> str:
        """Folder in the run directory with the numbers of the worker's starts."""
        return f"cluster/{self.worker}"

    def problem_here(self) -> str | None:
        """Return why the worker cannot be on this machine; None if it can."""
        here, mortal = f"node {socket.gethostname()}", this_mortal()
        if mortal != self.mortal:
            return f"{here} has mortal {mortal}, the flow's machine {self.mortal}: install the same"
        if not self._sees_run_dir():
            return (
                f"{here} does not have the run directory {self.run_dir} of the flow's machine: "
                "runs_dir must lie on a file system that all nodes share, at the same path"
            )
        if not self.working_dir.is_dir():
            return f"{here} has no folder {self.working_dir}, in which the run began: share it too"
        return None

    def _sees_run_dir(self) -> bool:
        file = self.run_dir / self.numbers / str(self.number)
        deadline = time.monotonic() + SEEN_WITHIN_S
        while not file.exists() and time.monotonic() < deadline:
            time.sleep(0.5)
        return file.exists() and file.read_text(encoding="utf-8") == self.nonce


def this_mortal() -> str:
    """Return the version of this code, and its digest."""
    return f"{mortal_steps.__version__} ({sources_sha256()[:12]})"


class Node:
    """Holds a worker in a process of its own."""

    def __init__(self, orders: Orders) -> None:
        self._orders, self._store = orders, RunStore(orders.run_dir)
        logs = orders.run_dir / "logs"
        self._container = LocalContainer(orders.worker, orders.spec, 0, orders.working_dir, logs)

    async def begin(self) -> str | None:
        """Return why the worker cannot be here. If it can, look for later numbers from now on."""
        problem = self._orders.problem_here()
        if problem is None:
            self._looking = asyncio.create_task(self._end_when_given_up())
        return problem

    async def call(self, method: str, payload: Mapping[str, Any], label: str) -> Answer:
        """Return what came of the call of the worker."""
        try:
            if self._is_given_up():
                raise LeaseLostError(f"{self._orders.worker} was started anew since; {label}")
            value = await self._container.call(method, payload, label)
        except Exception as error:  # noqa: BLE001 - the boundary: any error travels to the caller
            return Answer(number=0, error=as_mortal_error(error))
        return Answer(number=0, value=value)

    async def close(self) -> None:
        await self._container.close()

    def _is_given_up(self) -> bool:
        started = self._store.numbered(self._orders.numbers)
        return any(number > self._orders.number for number, _ in started)

    async def _end_when_given_up(self) -> None:
        while True:
            with contextlib.suppress(OSError):  # of the shared file system; it is asked again
                if self._is_given_up():
                    os._exit(1)
            await asyncio.sleep(LOOK_EVERY_S)
