"""What users build rewards from."""

from mortal_steps.rewards.environments import FunctionConfig, RewardEnvironment, SandboxConfig
from mortal_steps.sandbox.base import ExecutionResult

__all__ = ["ExecutionResult", "FunctionConfig", "RewardEnvironment", "SandboxConfig"]
