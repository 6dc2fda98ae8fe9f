"""The parts of a run's plan that concern its environments, and the rows that they may bring."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from mortal_steps.config import DataConfig, EnvironmentConfig, ModalConfig, RewardsConfig


@dataclass(frozen=True, kw_only=True, slots=True)
class EnvironmentPlan:
    """The environments of a run, and where their code runs."""

    environment: EnvironmentConfig
    rewards: RewardsConfig
    """Those that need the environments are computed beside them."""
    seed: int
    """The run's, from which environments have their random streams."""
    app: str
    """Name of the run's app on Modal."""
    passed_on: Sequence[str]
    """Variables that environments see although they may hold credentials."""
    modal: ModalConfig | None
    """Says where environments run, if they are in Modal Sandboxes."""
    python: str | None
    """Interpreter of the rollout workers; None: that of this process."""
    env: Mapping[str, str]
    """Additional environment variables of the rollout workers."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ProblemsPlan:
    """What the problems of a run are read from."""

    data: DataConfig
    seed: int
    """The run's, from which tasks draw their rows."""
    num_made: int | None
    """Rows where neither `data` nor the environment has any; None where rows have prompts."""
    are_learned: bool = False
    """Whether the run learns the rows themselves, of which nothing is sampled."""
    environment: EnvironmentPlan
