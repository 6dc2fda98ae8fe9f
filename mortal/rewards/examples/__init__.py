"""Reward environments that come with MORTAL."""

from mortal_steps.rewards.code_execution.environment import (
    CodeExecutionEnvironment,
    compute_reward,
    compute_reward_with_partial_credit,
    reward_helper_function,
)
from mortal_steps.rewards.judge.environment import LLMJudgeEnvironment

__all__ = [
    "CodeExecutionEnvironment",
    "LLMJudgeEnvironment",
    "compute_reward",
    "compute_reward_with_partial_credit",
    "reward_helper_function",
]
