"""The configuration of `modal_grpo`, with its names and defaults, as one of this system."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from mortal_steps.config import RunConfig
from mortal_steps.config.flagged import CODE_DATASET
from mortal_steps.config.loader import dump_toml, parse_config


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
    """A whole run on Modal: the actor on an H100, rollout workers on A10s, programs scored by their
    test cases."""

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
        """Return the same as a configuration of this system.

        Raises `ConfigError` for a value that it does not allow.
        """
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
