"""What decides what a run produces, as its configuration has it."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from mortal_steps.config import DataConfig, ModelConfig, RewardsConfig
from mortal_steps.config.eval_sets import Harness


@dataclass(frozen=True, kw_only=True, slots=True)
class IdentityPlan:
    """What a run is told from others by, of which data, models and code are named alone."""

    settings: Mapping[str, Any]
    """The keys that decide the run's numbers, where they differ from the defaults."""
    data: DataConfig
    model: ModelConfig
    rewards: Mapping[str, RewardsConfig]
    """What scores, by the key that names it."""
    teachers: Mapping[str, ModelConfig]
    """Models that teach, by the key that names them."""
    harnesses: Mapping[str, Harness]
    """By the name of the set that each scores."""
