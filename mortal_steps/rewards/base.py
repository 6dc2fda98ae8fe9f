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

from collections.abc import Awaitable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol


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


def text_of(completion: str | Iterable[Mapping[str, Any]]) -> str:
    if isinstance(completion, str):
        return completion
    return "".join(str(message["content"]) for message in completion)


def asked(prompt: str | Sequence[Mapping[str, Any]]) -> str:
    """Return the text of a prompt: of a chat, that of the last message."""
    return prompt if isinstance(prompt, str) else str(prompt[-1]["content"])
