"""What stands where stock TRL samples and scores: the completions and rewards of a batch."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from mortal_steps.policy.trl_trainer import SteppedTrainer
from mortal_steps.types import RolloutBatch


def recorded_rollouts(prompts: Sequence[Any], trainer: SteppedTrainer) -> dict[str, list[Any]]:
    return trainer.recorded


def recorded_reward(name: str) -> Callable[..., list[float | None]]:
    """A reward function, as TRL sees it, that returns the recorded score `name` of each row."""

    def reward(recorded_rewards: Sequence[Any], **kwargs: Any) -> list[float | None]:
        return [rewards[name] for rewards in recorded_rewards]

    reward.__name__ = name
    return reward


def columns(batch: RolloutBatch, max_completion_length: int) -> dict[str, list[Any]]:
    """The batch as `rollout_func` returns it: one row per rollout, in group and generation order.

    Completions are cut to `max_completion_length` tokens, and their logprobs with them.
    """
    rows = [(group, rollout) for group in batch.groups for rollout in group.rollouts]
    end = max_completion_length
    return {
        "prompt_ids": [list(group.prompt_ids) for group, _ in rows],
        "completion_ids": [list(rollout.completion.token_ids[:end]) for _, rollout in rows],
        "logprobs": [list(rollout.completion.logprobs[:end]) for _, rollout in rows],
        "recorded_rewards": [dict(rollout.rewards) for _, rollout in rows],
    }


def no_rows() -> Any:
    yield {"prompt": ""}
