"""What a fault is: what it does, whom it strikes, and for how long."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, Literal

Strikes = Literal["problem", "shard"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Scene:
    """Where and how long a fault is planted."""

    once: bool
    """It passes: it strikes the first time alone. Otherwise it strikes every time."""
    mark: str
    """Stands in the completion that is struck, and in no other."""


@contextlib.contextmanager
def _nothing(stage: Any, scene: Scene) -> Iterator[None]:
    yield


@dataclass(frozen=True, kw_only=True, slots=True)
class Fault:
    """One kind of fault."""

    name: str
    strikes: Strikes = "problem"
    """One problem of the first shard, or all of that shard."""
    plant: Callable[[Any, Scene], AbstractContextManager[None]] = _nothing
    """Makes it happen on a boundary's stage while the block lasts; by default, the reward function
    does so itself, as the column `fault` says."""
