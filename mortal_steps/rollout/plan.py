"""The part of a run's plan that rollout workers are given."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from mortal_steps.config import EnvironmentConfig, ModelConfig, RewardsConfig, RolloutConfig
from mortal_steps.config.eval_sets import Harness
from mortal_steps.rollout.episodes.base import ToolSettings
from mortal_steps.store import RunStore


@dataclass(frozen=True, kw_only=True, slots=True)
class SamplerPlan:
    """What a rollout worker works with."""

    model: ModelConfig
    """As engines load it."""
    rollout: RolloutConfig
    seed: int
    """The run's."""
    template_options: Mapping[str, Any]
    """Arguments of the model's chat template."""
    environment: EnvironmentConfig
    rewards: RewardsConfig
    """Those that need environments are computed beside them."""
    eval_rewards: RewardsConfig
    """The same of evaluations."""
    set_rewards: Mapping[str, RewardsConfig]
    """The same of the sets of evaluations that have rewards of their own, by name."""
    harnesses: Mapping[str, Harness]
    """Harnesses that evaluate the policy, by the name of their set."""
    tools: ToolSettings
    check_code: Callable[[RunStore], None]
    """Raises an error if the code of any of these is not what the run began with."""
