"""The workers inside a Modal container: a single one, or those of a node.

On a node the actor and a rollout worker take turns, each in a process of its own, as they would on
another machine: in one process the settings of the one (threads, deterministic kernels, torch's
random state) would decide the numbers of the other, and vLLM needs an environment of its own.
"""

from __future__ import annotations

import asyncio
import importlib
import logging
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol

from mortal_steps.compute.base import Role, WorkerSpec
from mortal_steps.compute.local_container import CLOSE_GRACE_S, LocalContainer

logger = logging.getLogger(__name__)


class Workers(Protocol):
    """Whoever carries out the orders of a container."""

    def call(self, role: Role, method: str, payload: Mapping[str, Any], label: str) -> Any:
        """Return the method's result; raise what it raises, and `WorkerLostError` for a lost
        process."""
        ...

    def close(self) -> None:
        """End the workers."""
        ...


class OneWorker:
    """A worker in this process."""

    def __init__(self, spec: WorkerSpec) -> None:
        os.environ.update({**spec.defaults, **os.environ, **spec.threading()})  # read at import
        logger.info("process %d is a %s", os.getpid(), spec.factory)
        module, _, name = spec.factory.partition(":")
        self._worker = getattr(importlib.import_module(module), name)(**spec.kwargs)

    def call(self, role: Role, method: str, payload: Mapping[str, Any], label: str) -> Any:
        """Call the worker, which is of the only role that is asked for here."""
        return getattr(self._worker, method)(**payload)

    def close(self) -> None:
        """End the worker; one without processes of its own goes with the last reference."""
        if hasattr(self._worker, "close"):
            self._worker.close()


class NodeWorkers:
    """A process for each role, started at its first call and again after it was lost."""

    def __init__(self, specs: Mapping[Role, WorkerSpec]) -> None:
        self._runner = asyncio.Runner()
        self._containers = {
            role: LocalContainer(role, spec, 0, Path.cwd(), None) for role, spec in specs.items()
        }

    def call(self, role: Role, method: str, payload: Mapping[str, Any], label: str) -> Any:
        """Call the process of the role; none works on where the container is taken away."""
        try:
            return self._runner.run(self._containers[role].call(method, payload, label))
        except Exception:
            raise
        except BaseException:
            self._end_processes(grace_s=0.0)
            raise

    def close(self) -> None:
        self._end_processes()
        self._runner.close()

    def _end_processes(self, grace_s: float = CLOSE_GRACE_S) -> None:
        async def end() -> None:
            await asyncio.gather(*(one.close(grace_s) for one in self._containers.values()))

        self._runner.run(end())
