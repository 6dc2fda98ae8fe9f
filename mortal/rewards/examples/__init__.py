"""Reward environments that come with MORTAL."""

from mortal_steps.rewards.code_execution.environment import (
    CodeExecutionEnvironment,
    compute_reward,
    compute_reward_with_partial_credit,
    reward_helper_function,
)

__all__ = [
    "CodeExecutionEnvironment",
    "compute_reward",
    "compute_reward_with_partial_credit",
    "reward_helper_function",
]
