"""What a trainer and the process that drives its run tell each other."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from mortal_steps.config import RunConfig


@dataclass(frozen=True, kw_only=True)
class Request:
    """What the owner wants."""

    action: str
    """A name in `ACTIONS`."""
    config: RunConfig
    options: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Answer:
    """What came of it: a value, or the error that ended it."""

    value: Any = None
    error: BaseException | None = None
