"""The compute protocol: named roles of stateful workers, called by method with small payloads.

A worker is a plain class constructed inside its container; its methods are synchronous, take
keyword arguments and return the records of `mortal_steps.types`. The same classes serve in local
processes and in Modal containers.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol, get_args

Role = Literal["actor", "rollout", "reward"]
ROLES: tuple[Role, ...] = get_args(Role)


@dataclass(frozen=True, kw_only=True, slots=True)
class CallKey:
    """Identity of a call: two calls with the same key ask for the same piece of work."""

    run_id: str
    stage: str
    step: int
    index: int = 0
    """Shard or worker, where the stage is fanned out."""

    @property
    def label(self) -> str:
        """The call's name within its run, such as `generate/12/0`."""
        return f"{self.stage}/{self.step}/{self.index}"

    def __str__(self) -> str:
        return f"{self.run_id}/{self.label}"


@dataclass(frozen=True, kw_only=True, slots=True)
class WorkerSpec:
    """How the workers of a role are started."""

    factory: str
    """`module:Class` of the worker."""
    kwargs: Mapping[str, Any]
    """Constructor arguments; picklable."""
    count: int = 1
    prepare: str | None = None
    """Method that makes a worker ready, called as soon as the role is started. None: a worker
    starts at its first call."""
    python: str | None = None
    """Python interpreter; by default the one of this process."""
    threads: int = 1
    """OMP_NUM_THREADS."""
    devices: tuple[str, ...] = ()
    """Values of CUDA_VISIBLE_DEVICES, given to the workers in turn."""
    env: Mapping[str, str] = field(default_factory=dict)
    defaults: Mapping[str, str] = field(default_factory=dict)
    """Environment variables for where the environment does not have them."""
    rounding: Mapping[str, str] | None = None
    """All variables that decide how libraries round; None: those of this process. What `env` names
    goes first."""
    preload: tuple[str, ...] = ()
    """Modules that a process imports once on a machine without a GPU; each worker is then forked
    from it. Empty: each worker is started as an interpreter of its own."""
    shared_gpu: bool = False
    """Whether the workers share a GPU with rollout workers whose engine measures the free memory
    while it starts. See `gpu_lock`."""
    starts_engine_in: tuple[str, ...] = ()
    """Methods in which such an engine starts."""

    def threading(self) -> dict[str, str]:
        """Environment variables that decide how a worker's threads compute."""
        return {
            "OMP_NUM_THREADS": str(self.threads),
            # MKL would take fewer threads on a machine with fewer cores, and round otherwise.
            "MKL_DYNAMIC": "FALSE",
            "TOKENIZERS_PARALLELISM": "false",
        }


class Compute(Protocol):
    """Where workers run."""

    async def start(self, role: Role) -> None:
        """Start the workers of `role`; returns when the first of them is ready.

        The others join as they become ready. Raises the error of a
        worker that could not get ready, and a `TransientError` if no worker could be started.
        """
        ...

    async def call(
        self,
        role: Role,
        method: str,
        *,
        key: CallKey,
        worker: int | None = None,
        **payload: Any,
    ) -> Any:
        """Call a method of one worker of `role`: the numbered one, or whichever is free first.

        The numbered one should be among `ready_workers`.
        Raises the worker's own `MortalError`; `WorkerError` for any other exception there;
        `WorkerLostError` (transient) if the worker ended in mid-call. A lost worker is replaced.
        """
        ...

    def ready_workers(self, role: Role) -> list[int]:
        """Numbers of the role's workers that can take calls now."""
        ...

    def spent(self) -> float:
        """Dollars that the workers of the run have cost so far, over all its attempts."""
        ...

    async def close(self) -> None:
        """End every worker."""
        ...
