"""MRL's `MRLTrainer`, with its parameters, as a `MortalTrainer`."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from mortal.trainer import Distributed, MortalTrainer
from mortal.trainer.parameters import ScaleRewards
from mortal_steps.config import RunConfig
from mortal_steps.config.rewards import SANDBOX
from mortal_steps.config.training import LossType
from mortal_steps.errors import ConfigError
from mortal_steps.orchestration.resolve_defaults import find_context
from mortal_steps.rewards.base import text_of

OF_TRL = ("prompts", "completion_ids", "trainer_state", "log_extra", "log_metric")
"""What reward functions are given here, and were not in MRL."""

MAX_TOKENS = 8000
"""Tokens that MRL sampled by default; here, at most half of the model's context."""

RewardOfStrings = Callable[..., Any]
"""`reward(completions: list[str], **columns) -> list[float]`."""


class MRLTrainer(MortalTrainer):
    """Trains on Modal as MRL did, and as durably as every run here.

    Reward functions get completions as a list of strings, and columns of the dataset beside them;
    the scores of several are averaged.
    """

    def __init__(
        self,
        model: Any = "Qwen/Qwen2.5-0.5B-Instruct",
        reward_funcs: str | RewardOfStrings | Sequence[str | RewardOfStrings] | None = None,
        train_dataset: Any = None,
        *,
        actor_gpu: str = "A100-80GB",
        rollout_gpu: str = "A10G",
        num_rollout_workers: int = 2,
        num_generations: int = 4,
        batch_size: int = 8,
        learning_rate: float = 5e-6,
        max_steps: int = -1,
        num_epochs: int = 5,
        loss_type: LossType = "dapo",
        weight_sync_method: str = "reload",
        use_lora: bool = False,
        beta: float = 0.0,
        epsilon: float = 0.2,
        scale_rewards: ScaleRewards = "group",
        max_tokens: int = MAX_TOKENS,
        max_model_len: int = 16384,
        max_completion_length: int = 1024,
        backend: Literal["local", "modal"] = "modal",
        run_id: str | None = None,
        runs_dir: str | Path = "runs",
        config: Mapping[str, Any] | None = None,
    ) -> None:
        rewards = rewards_of_strings(reward_funcs)
        if train_dataset is None and rewards != [SANDBOX]:
            raise ConfigError(
                f"MRLTrainer(reward_funcs={reward_funcs!r}) needs a train_dataset for it to score; "
                "without one, reward_funcs='sandbox' scores programs"
            )
        super().__init__(
            model,
            rewards,
            reward_weights=None if len(rewards) == 1 else [1 / len(rewards)] * len(rewards),
            mode=Distributed(
                actor=actor_gpu,
                rollout=rollout_gpu,
                num_rollout_workers=num_rollout_workers,
                weight_sync_method=weight_sync_method,
            ),
            train_dataset=train_dataset,
            num_generations=num_generations,
            batch_size=batch_size,
            learning_rate=learning_rate,
            max_steps=max_steps,
            num_epochs=num_epochs,
            loss_type=loss_type,
            use_lora=use_lora,
            beta=beta,
            epsilon=epsilon,
            scale_rewards=scale_rewards,
            max_tokens=max_tokens,
            max_model_len=max_model_len,
            max_completion_length=max_completion_length,
            backend=backend,
            run_id=run_id,
            runs_dir=runs_dir,
            config=config,
        )
        if max_tokens == MAX_TOKENS:
            self.config = _fitting(self.config)


def _fitting(config: RunConfig) -> RunConfig:
    """Return the configuration with MRL's `max_tokens` reduced to half of the model's context."""
    most = config.model.max_model_len
    room = min(most, find_context(config.model) or most) // 2
    rollout = config.rollout.model_copy(update={"max_tokens": min(MAX_TOKENS, room)})
    return config.model_copy(update={"rollout": rollout})


def rewards_of_strings(
    rewards: str | RewardOfStrings | Sequence[str | RewardOfStrings] | None,
) -> list[str | RewardOfStrings]:
    """MRL's rewards as a `MortalTrainer` takes them; a name stays a name, and what is no reward is
    left for it to refuse."""
    if rewards is None:
        return [SANDBOX]
    one_alone = isinstance(rewards, str) or callable(rewards)
    given: list[Any] = (
        [rewards] if one_alone or not isinstance(rewards, Iterable) else list(rewards)
    )
    return [of_strings(one) if callable(one) else one for one in given]


def of_strings(function: RewardOfStrings) -> RewardOfStrings:
    """Return the function with MRL's arguments, called with TRL's."""

    @functools.wraps(function)
    def called(completions: Sequence[Any], **arguments: Any) -> Any:
        columns = {name: value for name, value in arguments.items() if name not in OF_TRL}
        return function([text_of(completion) for completion in completions], **columns)

    return called
