"""What stands where stock TRL samples and scores: the completions and rewards of a batch."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from mortal_steps.types import RolloutBatch

NO_ROWS = [{"prompt": ""}]
"""TRL wants a dataset. This one is in memory: `datasets` makes a folder for one that it generates,
in the user's home, which may be read-only in a container."""


def recorded_reward(name: str) -> Callable[..., list[float | None]]:
    """A reward function, as TRL sees it, that returns the recorded score `name` of each row."""

    def reward(recorded_rewards: Sequence[Any], **kwargs: Any) -> list[float | None]:
        return [rewards[name] for rewards in recorded_rewards]

    reward.__name__ = name
    return reward


def columns(batch: RolloutBatch, max_completion_length: int) -> dict[str, list[Any]]:
    """The batch as GRPOTrainer's `rollout_func` returns it: one row per rollout, in group and
    generation order.

    Completions are cut to `max_completion_length` tokens, and their logprobs and masks with them.
    There is an `env_mask` where an environment has tokens in the batch: TRL keeps those out of the
    loss, of its weights and of the lengths it logs.
    """
    rows = [(group, rollout) for group in batch.groups for rollout in group.rollouts]
    completions = [rollout.completion for _, rollout in rows]
    end = max_completion_length
    recorded: dict[str, list[Any]] = {
        "prompt_ids": [
            list(group.prompt_ids if completion.prompt_ids is None else completion.prompt_ids)
            for (group, _), completion in zip(rows, completions, strict=True)
        ],
        "completion_ids": [list(completion.token_ids[:end]) for completion in completions],
        "logprobs": [list(completion.logprobs[:end]) for completion in completions],
        "recorded_rewards": [dict(rollout.rewards) for _, rollout in rows],
    }
    if any(completion.num_sampled < len(completion.token_ids) for completion in completions):
        recorded["env_mask"] = [completion.loss_mask[:end] for completion in completions]
    return recorded
