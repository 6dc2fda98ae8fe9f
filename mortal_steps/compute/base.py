"""The workers of a run: named roles of stateful objects, called by method with small payloads.

A worker is a plain class constructed inside its container; its methods are synchronous, take
keyword arguments and return the records of `mortal_steps.types`. The same classes serve in local
processes and in Modal containers.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, get_args

Role = Literal["actor", "rollout", "reward"]
ROLES: tuple[Role, ...] = get_args(Role)


@dataclass(frozen=True, kw_only=True, slots=True)
class WorkerSpec:
    """How the workers of a role are started."""

    factory: str
    """`module:Class` of the worker."""
    kwargs: Mapping[str, Any]
    """Constructor arguments; picklable."""
    count: int = 1
    prepare: str | None = None
    """Makes a worker ready, as soon as the role is started. None: it starts at its first call."""
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
    while it starts. See `GpuLock`."""
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
