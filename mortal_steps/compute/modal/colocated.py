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
from dataclasses import replace
from pathlib import Path
from typing import Any, Protocol

from mortal_steps.compute.base import Role, WorkerSpec
from mortal_steps.compute.local_container import CLOSE_GRACE_S, LocalContainer
from mortal_steps.compute.placement import sharing_gpus
from mortal_steps.config import LocalConfig, RunConfig
from mortal_steps.config.gpus import gpu_count

logger = logging.getLogger(__name__)


class Workers(Protocol):
    """Whoever carries out the orders of a container."""

    def call(self, role: Role, method: str, payload: Mapping[str, Any], label: str) -> Any:
        """The method's result; raises what it raises, and `WorkerLostError` for a lost process."""
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
        """See `Workers.call`; the worker is of the only role that is asked for here."""
        return getattr(self._worker, method)(**payload)

    def close(self) -> None:
        """See `Workers.close`; one without processes of its own goes with the last reference."""
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
        """See `Workers.call`. Where the container is taken away meanwhile, no process works on."""
        try:
            return self._runner.run(self._containers[role].call(method, payload, label))
        except Exception:
            raise
        except BaseException:
            self._end_processes(grace_s=0.0)
            raise

    def close(self) -> None:
        """See `Workers.close`."""
        self._end_processes()
        self._runner.close()

    def _end_processes(self, grace_s: float = CLOSE_GRACE_S) -> None:
        async def end() -> None:
            await asyncio.gather(*(one.close(grace_s) for one in self._containers.values()))

        self._runner.run(end())


def on_one_node(specs: Mapping[Role, WorkerSpec], config: RunConfig) -> dict[Role, WorkerSpec]:
    """Those of a run's workers that its node holds, on the GPUs of the container.

    What the configuration says of local processes (interpreter, devices, environment) is about
    another machine.
    """
    engine = config.rollout.engine_kind
    python = os.environ.get(engine.node_python) if engine.node_python else None
    actor = replace(specs["actor"], python=None, devices=(), env={})
    rollout = replace(specs["rollout"], python=python, devices=(), env={})
    if config.compute.modal.vllm_mode == "server":
        *others, last = map(str, range(gpu_count(config.compute.modal.gpu)))
        actor = replace(actor, devices=(",".join(others),))
        rollout = replace(rollout, devices=(last,))
    else:
        anywhere = config.compute.model_copy(update={"local": LocalConfig()})
        shared = sharing_gpus(config.model_copy(update={"compute": anywhere})).rollout
        shares = config.model_copy(update={"rollout": shared})
        rollout = replace(rollout, kwargs={**rollout.kwargs, "config": shares})
    return {"actor": actor, "rollout": rollout}
