"""The Python interfaces of two older systems, on top of this one; docs/migrating.md lists them.

    from mortal.migrating import MRLTrainer

    MRLTrainer(reward_funcs=my_reward, train_dataset=rows, max_steps=10).train()

Every parameter is mapped to a key of the configuration, or refused with the reason.
"""

import functools
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from mortal.trainer import Distributed, MortalTrainer
from mortal_steps.config.rewards import SANDBOX
from mortal_steps.errors import ConfigError
from mortal_steps.plan.loader import CODE_DATASET, dump_toml, parse_config
from mortal_steps.plan.run_config import RunConfig
from mortal_steps.rewards.base import text_of

__all__ = [
    "GenerationConfig",
    "MRLTrainer",
    "ModelConfig",
    "OrchestratorConfig",
    "TrainingConfig",
]

OF_TRL = ("prompts", "completion_ids", "trainer_state", "log_extra", "log_metric")
"""What reward functions are given here, and were not in MRL."""

RewardOfStrings = Callable[..., Any]
"""`reward(completions: list[str], **columns) -> list[float]`."""


class MRLTrainer(MortalTrainer):
    """Trains on Modal as MRL did, and as durably as every run here.

    Reward functions get completions as a list of strings, and columns of the dataset beside them;
    the scores of several are averaged. The other parameters of MRL, such as `batch_size` and
    `loss_type`, have the same names and defaults in `MortalTrainer`.
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
        weight_sync_method: str = "reload",
        backend: Literal["local", "modal"] = "modal",
        **others: Any,
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
            backend=backend,
            **others,
        )


def rewards_of_strings(
    rewards: str | RewardOfStrings | Sequence[str | RewardOfStrings] | None,
) -> list[str | RewardOfStrings]:
    """Return MRL's rewards as `MortalTrainer` takes, or refuses, them."""
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


@dataclass(frozen=True, kw_only=True)
class ModelConfig:
    """Which model is trained."""

    model_name: str = "Qwen/Qwen2-0.5B-Instruct"
    max_model_len: int = 4096
    """Longest prompt plus completion, in tokens."""
    trust_remote_code: bool = False
    """Allow code that ships with the model to run. What is not asked for is not allowed here."""


@dataclass(frozen=True, kw_only=True)
class TrainingConfig:
    """How it is trained."""

    num_epochs: int = 5
    max_steps: int = -1
    """-1: as many as the epochs take."""
    batch_size: int = 8
    """Prompts per train step."""
    learning_rate: float = 5e-6
    num_generations: int = 4
    """Completions per prompt."""
    save_steps: int = 100
    sync_weights_every: int = 1
    """Train steps between two versions of the weights that completions are sampled with."""


@dataclass(frozen=True, kw_only=True)
class GenerationConfig:
    """How completions are sampled."""

    max_tokens: int = 512
    temperature: float = 0.7
    top_p: float = 0.9


@dataclass(frozen=True, kw_only=True)
class OrchestratorConfig:
    """A run on Modal: an H100 trains, A10s sample, programs are scored by test cases."""

    model: ModelConfig = field(default_factory=ModelConfig)
    training: TrainingConfig = field(default_factory=TrainingConfig)
    generation: GenerationConfig = field(default_factory=GenerationConfig)
    num_rollout_workers: int = 2
    dataset_name: str = str(CODE_DATASET["source"])
    dataset_config: str | None = str(CODE_DATASET["config"])
    prompt_column: str = str(CODE_DATASET["prompt_column"])
    """Column with the prompts, which was always this one."""
    max_samples: int | None = 128
    """Rows of the dataset; None: all."""

    def run_config(self) -> RunConfig:
        """Return the same as a configuration of this system. Raises `ConfigError`."""
        return parse_config(self._values(), origin="OrchestratorConfig")

    def write(self, path: str | Path) -> Path:
        """Write it as a file for `mortal train`; raises what `run_config` does."""
        written = Path(path)
        written.write_text(dump_toml(self.run_config()), encoding="utf-8")
        return written

    def _values(self) -> dict[str, Any]:
        training, generation = self.training, self.generation
        return {
            "model": {
                "name_or_path": self.model.model_name,
                "max_model_len": self.model.max_model_len,
                "trust_remote_code": self.model.trust_remote_code,
            },
            "data": {
                "source": self.dataset_name,
                "config": self.dataset_config,
                "prompt_column": self.prompt_column,
                "max_samples": self.max_samples,
            },
            "training": {
                "num_epochs": training.num_epochs,
                "max_steps": training.max_steps,
                "batch_size": training.batch_size,
                "learning_rate": training.learning_rate,
                "num_generations": training.num_generations,
            },
            "checkpoints": {"save_steps": training.save_steps},
            "rollout": {
                "max_tokens": generation.max_tokens,
                "temperature": generation.temperature,
                "top_p": generation.top_p,
                "num_rollout_workers": self.num_rollout_workers,
                "sync_weights_every": training.sync_weights_every,
            },
            "compute": {"backend": "modal", "modal": {"actor": "H100", "rollout": "A10G"}},
        }
