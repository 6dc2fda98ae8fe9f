"""Functions called on a shard, as the reward host calls them."""

import asyncio
from typing import Any

from mortal_steps.config import RewardsConfig, RewardTerm
from mortal_steps.rewards.base import TrainerState
from mortal_steps.rewards.calling.calls import CallScores, Outcome, arguments_of
from mortal_steps.rewards.calling.dispatch import begin_call
from tests.support.rewards.shards import make_shard


def term(function: str) -> RewardTerm:
    """Return the term of a function, as `rewards.functions` makes it."""
    (made,) = RewardsConfig(functions=(function,)).all_terms
    return made


STATE = TrainerState(global_step=8, max_steps=20)
SHARD = make_shard(("ba", "b"), ("", "baba"))


def call(shard: Any = SHARD, timeout_s: float = 10.0, **functions: Any) -> dict[str, Outcome]:
    arguments = arguments_of(shard.groups, STATE)
    return {
        name: begin_call(each, arguments, timeout_s=timeout_s)() for name, each in functions.items()
    }


def scored(function: Any, shard: Any = SHARD) -> CallScores:
    outcome = call(shard, f=function)["f"]
    assert isinstance(outcome, CallScores), outcome
    return outcome


async def slow(completions: list[str], scale: float = 1.0, **kwargs: Any) -> list[float]:
    """Return an async reward function."""
    await asyncio.sleep(0)
    return [scale] * len(completions)
