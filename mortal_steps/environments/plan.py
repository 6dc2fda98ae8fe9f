"""The part of a run's plan that processes with its environments are given."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from mortal_steps.config import EnvironmentConfig, ModalConfig


@dataclass(frozen=True, kw_only=True, slots=True)
class EnvironmentPlan:
    """The environments of a run, and where their code runs."""

    environment: EnvironmentConfig
    passed_on: Sequence[str]
    """Variables that environments see although they may hold credentials."""
    modal: ModalConfig | None
    """Says where environments run, if they are in Modal Sandboxes."""
    python: str | None
    """Interpreter of the rollout workers; None: that of this process."""
    env: Mapping[str, str]
    """Additional environment variables of the rollout workers."""
