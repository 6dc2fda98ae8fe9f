"""The messages between a trainer and the process that drives its run."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from mortal_steps.config import RunConfig

IN_NOTEBOOK = "MORTAL_IN_NOTEBOOK"
"""Environment variable that is set for the process if a notebook shows its output."""


@dataclass(frozen=True, kw_only=True)
class Request:
    """What the trainer asks for."""

    action: str
    """Name of a function in mortal/trainer/actions.py."""
    config: RunConfig
    options: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Answer:
    """The answer to a request: the action's return value, or the error that it raised."""

    value: Any = None
    error: BaseException | None = None
