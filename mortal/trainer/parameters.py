"""The types of the trainer's parameters, for editors and type checkers."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, TypedDict

from mortal.trainer.modes import Mode
from mortal.trainer.objects.rewards import Reward
from mortal_steps.config.training import LossType
from mortal_steps.types import Prompt

if TYPE_CHECKING:  # whoever gives one of these has imported its library
    from datasets import Dataset, DatasetDict, IterableDataset
    from pandas import DataFrame

    Rows: TypeAlias = (
        str
        | Path
        | Dataset
        | IterableDataset
        | DatasetDict
        | DataFrame
        | Iterable[Mapping[str, Any]]
        | Callable[[], Iterable[Mapping[str, Any]]]
    )
    """A dataset: its name, or its rows."""

ScaleRewards = Literal["group", "batch", "none"] | bool
Prompts = str | Iterable[Prompt]
"""A text, several texts, or several conversations."""


class Changes(TypedDict, total=False):
    """The parameters of `MortalTrainer` that a fork may change."""

    reward_funcs: Reward | Sequence[Reward]
    reward_weights: Sequence[float]
    train_dataset: Rows
    eval_dataset: Rows | Mapping[str, Rows]
    mode: Mode
    num_generations: int
    batch_size: int
    learning_rate: float
    max_steps: int
    num_epochs: float
    loss_type: LossType
    beta: float
    epsilon: float
    scale_rewards: ScaleRewards
    max_completion_length: int
    max_tokens: int
    max_model_len: int
    use_lora: bool
    gradient_checkpointing: bool
    algorithm: str
    backend: Literal["local", "modal"]
    report_to: str | Sequence[str]
    config: Mapping[str, Any]
