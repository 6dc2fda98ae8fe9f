"""What a trainer and the process that drives its run tell each other."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from mortal_steps.config import RunConfig

IN_NOTEBOOK = "MORTAL_IN_NOTEBOOK"
"""Environment variable of the process, where a notebook shows what it says."""


@dataclass(frozen=True, kw_only=True)
class Request:
    """What the owner wants."""

    action: str
    """A function in mortal/trainer/actions.py."""
    config: RunConfig
    options: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Answer:
    """What came of it: a value, or the error that ended it."""

    value: Any = None
    error: BaseException | None = None
