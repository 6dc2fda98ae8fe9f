"""What a reward function is: a plain callable, exactly as TRL's GRPOTrainer takes it.

    def shorter_is_better(completions, **kwargs):
        return [1.0 / len(text) if text else None for text in completions]

It is called once per shard with keyword arguments alone, each list as long as the completions:
`prompts`, `completions` (texts; with chat prompts `[{"role": "assistant", "content": text}]`),
`completion_ids`, every dataset column by its name, and besides `trainer_state`,
`log_extra(column, values)` and `log_metric(name, value)`. All completions of a problem stand
together. It returns one number per completion, or None where it abstains, and may be async.

It runs in a process of its own, the reward host, for `rewards.timeout_s` at most. After a failure
it is called again with the same completions and, where failures are masked, for single problems.
"""

from __future__ import annotations

from collections.abc import Awaitable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from mortal_steps.config import RunConfig
from mortal_steps.rewards.names import reward_names
from mortal_steps.types import RewardedShard


class RewardFunction(Protocol):
    """A reward function, plain or async."""

    def __call__(self, **kwargs: Any) -> Sequence[float | None] | Awaitable[Sequence[float | None]]:
        """Scores of the completions, in their order."""
        ...


@dataclass(frozen=True, kw_only=True, slots=True)
class TrainerState:
    """How far training is; the part of transformers' TrainerState that rewards are shaped by."""

    global_step: int
    """Optimizer updates done by the step's beginning."""
    max_steps: int
    """Optimizer updates of the whole run."""


def reward_weights(config: RunConfig) -> dict[str, float]:
    """Weight of each reward function by name; 1 where none are given."""
    names = reward_names(config)
    return dict(zip(names, config.rewards.weights or [1.0] * len(names), strict=True))


def weighted_sum(scores: Mapping[str, float | None], weights: Mapping[str, float]) -> float | None:
    """A completion's reward: the weighted sum over the functions that scored, as in TRL.

    None when every function abstained: such a completion takes no part in training.
    """
    scored = [weights[name] * score for name, score in scores.items() if score is not None]
    return sum(scored) if scored else None


def total_reward(shard: RewardedShard, weights: Mapping[str, float]) -> tuple[float, int]:
    """Sum of the rewards of a shard's completions, and how many have one."""
    totals = [weighted_sum(scores, weights) for group in shard.rewards for scores in group]
    scored = [total for total in totals if total is not None]
    return float(sum(scored)), len(scored)


def text_of(completion: str | Iterable[Mapping[str, Any]]) -> str:
    """The text of a completion, be it text or chat messages."""
    if isinstance(completion, str):
        return completion
    return "".join(str(message["content"]) for message in completion)
