"""Rewards that come with MORTAL, and what users build their own from."""

from mortal.rewards.functions import (
    Exact,
    Format,
    Length,
    Math,
    Overlong,
    Regex,
    Repetition,
    exact_match,
    math_equal,
    reasoning_gym_score,
    reasoning_gym_solved,
    repetition_penalty,
    think_answer_format,
    think_answer_soft,
)
from mortal_steps.rewards.environments import FunctionConfig, RewardEnvironment, SandboxConfig
from mortal_steps.sandbox.base import ExecutionResult

__all__ = [
    "Exact",
    "ExecutionResult",
    "Format",
    "FunctionConfig",
    "Length",
    "Math",
    "Overlong",
    "Regex",
    "Repetition",
    "RewardEnvironment",
    "SandboxConfig",
    "exact_match",
    "math_equal",
    "reasoning_gym_score",
    "reasoning_gym_solved",
    "repetition_penalty",
    "think_answer_format",
    "think_answer_soft",
]
