"""Rewards that come with MORTAL, and what users build their own from."""

from mortal.rewards import functions
from mortal.rewards.functions import *  # noqa: F403
from mortal_steps.rewards.environments import FunctionConfig, RewardEnvironment, SandboxConfig
from mortal_steps.sandbox.base import ExecutionResult

__all__ = ["ExecutionResult", "FunctionConfig", "RewardEnvironment", "SandboxConfig"]
__all__ += functions.__all__
