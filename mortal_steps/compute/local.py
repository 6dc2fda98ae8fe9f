"""Workers in processes on this machine: each container is one OS process of its own.

Killing one is survived like losing a Modal container: the call in flight raises
`WorkerLostError`, the next call starts a fresh process.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from mortal_steps.compute.base import Role, WorkerSpec
from mortal_steps.compute.forkserver import fork_server
from mortal_steps.compute.local_container import LocalContainer, worker_environment
from mortal_steps.compute.pool import Compute, GpuLock, Pool
from mortal_steps.system.threads import event_loop_in_thread

REHEARSAL = "rehearsal"
"""Name of a worker that is started for a few calls."""


class LocalCompute(Compute):
    """`Compute` on local processes. `working_dir` is the current directory of every worker, so that
    relative paths mean the same there as here; `log_dir` receives one log file per worker. Each
    worker keeps the `inherited` file descriptors open for as long as it lives."""

    def __init__(
        self,
        specs: Mapping[Role, WorkerSpec],
        *,
        working_dir: Path,
        log_dir: Path,
        inherited: Sequence[int] = (),
        container: type[LocalContainer] = LocalContainer,
    ) -> None:
        gpu = GpuLock()
        self._containers = {
            role: [
                container(f"{role}-{n}", spec, n, working_dir, log_dir, inherited)
                for n in range(spec.count)
            ]
            for role, spec in specs.items()
        }
        super().__init__(
            {
                role: Pool(
                    self._containers[role],
                    spec.prepare,
                    gpu=gpu if spec.shared_gpu else None,
                    alone_in=spec.starts_engine_in,
                )
                for role, spec in specs.items()
            }
        )

    def processes(self) -> dict[str, int]:
        """Return the process id of each running container, by name such as `rollout-0`."""
        everyone = [container for role in self._containers.values() for container in role]
        return {c.name: c.pid for c in everyone if c.process is not None and c.pid is not None}


def begin_imports(spec: WorkerSpec) -> None:
    """Begin such workers' imports beside this process. Raises `OSError` if that cannot start."""
    fork_server(spec, worker_environment(spec, {}))


def call_once(spec: WorkerSpec, method: str, **payload: Any) -> Any:
    """Make one call of a worker, in a process that is started for this call; see `call_several`."""
    return call_several(spec, method, [payload])[0]


def call_several(
    spec: WorkerSpec,
    method: str,
    payloads: Sequence[Mapping[str, Any]],
    log_dir: Path | None = None,
) -> list[Any]:
    """Make calls of one worker, one after the other, in a process that is started for them; this
    blocks.

    What the worker prints goes to `log_dir`, or is lost without one. This can be used while an
    event loop is running. Raises what `Compute.call` raises; if it is interrupted, it ends the
    process first.
    """
    loop = event_loop_in_thread(REHEARSAL)
    container = LocalContainer(
        REHEARSAL, spec, 0, Path.cwd(), log_dir, log_in_scratch=log_dir is None
    )

    async def call() -> list[Any]:
        return [await container.call(method, payload, method) for payload in payloads]

    answer = asyncio.run_coroutine_threadsafe(call(), loop)
    try:
        return answer.result()
    finally:
        answer.cancel()  # where this was interrupted
        asyncio.run_coroutine_threadsafe(container.close(), loop).result()
        loop.call_soon_threadsafe(loop.stop)
