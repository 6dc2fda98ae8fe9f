"""How a plane is run."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

Isolation = Literal["namespaces", "none"]
"""See isolation.py."""


@dataclass(frozen=True, kw_only=True, slots=True)
class StandIn:
    """An interpreter that runs the containers of some images."""

    match: str
    """Part of a line of the image's build, such as `vllm`; empty: every image."""
    python: Path


@dataclass(frozen=True, kw_only=True, slots=True)
class Options:
    """How a plane is run."""

    state: Path
    """Directory of everything the plane writes."""
    stand_ins: tuple[StandIn, ...]
    """Looked through in order; the first whose `match` is in the image runs it."""
    isolation: Isolation = "namespaces"
    port: int = 0
    """Of the gRPC service that clients see; 0 is any free one."""
    max_containers: int = 8
    """Of one pool, where the app sets no limit."""
    scaledown_s: float = 60.0
    """How long a container stays idle where the app sets no `scaledown_window`."""
    timeout_grace_s: float = 30.0
    """After an input's timeout: until SIGINT, and again until SIGKILL."""
    preemption_grace_s: float = 30.0
    """Between a preemption's SIGINT and its SIGKILL."""
    heartbeat_timeout_s: float = 60.0
    """An app of `modal run` whose client was silent for so long has lost its client."""
    background_commit_s: float = 0.0
    """Between two commits of a container's volumes that it did not ask for; 0: none."""
    startup_failures: int = 1
    """Containers that may fail at start-up before the waiting inputs fail."""
    line_delay_s: float = 0.0
    """What a client waits for any answer: half of it on the way here, half on the way back."""
    reload_delay_s: float = 0.0
    """How long a container's `reload` takes."""
    commit_delay_s: float = 0.0
    """How long a container's `commit` takes."""
    environment: tuple[tuple[str, str], ...] = ()
    """Variables that every container gets."""
    hide: tuple[Path, ...] = ()
    """Directories that containers see empty, so that they run only what their image holds."""
    with_parent: bool = False
    """Stop when the process that started the plane is gone."""
