"""`type = "model"`: the score of a reward model, as TRL's GRPOTrainer has it."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from typing import Any, Literal, Self

from pydantic import Field, model_validator

from mortal_steps.config import ModelConfig
from mortal_steps.config.rewards import RewardTerm
from mortal_steps.config.section import LocalPath, Options
from mortal_steps.errors import RewardError
from mortal_steps.models.hub import is_hub_model
from mortal_steps.models.local_folder import check_folder
from mortal_steps.rewards.base import RewardFunction
from mortal_steps.users_code.loading import import_code

MODEL = "mortal_steps.rewards.reward_model:RewardModel"
"""Imported when it is loaded: torch takes seconds."""


class ModelTerm(RewardTerm, extra="forbid"):
    """The score of a model with a sequence-classification head of one label."""

    type: Literal["model"] = "model"
    model: LocalPath = Field(min_length=1)
    """Folder of the model, or its id on the hub."""
    revision: str | None = None
    """Branch, tag or commit on the hub; a run notes the commit when it begins."""
    tokenizer: LocalPath | None = None
    """Folder of the tokenizer; default: the model's."""
    chat_template_kwargs: Options | None = None
    """For the chat template; default: `training.trl.chat_template_kwargs`, as in TRL."""
    max_length: int | None = Field(None, ge=1)
    """Tokens of prompt and completion that are read; default: all, as in TRL."""
    truncation: Literal["left", "right"] = "left"
    """Which end is cut off beyond `max_length`."""
    append_eos: bool = False
    """End a plain text with the tokenizer's end token, as the rows are that `algorithm.type =
    "reward"` trains a model on. TRL's GRPO adds none. A chat template has its own end."""
    batch_size: int | None = Field(None, ge=1)
    """Completions in one forward pass; default: all of a call, as in TRL. Padding changes the last
    bits of a score, so with 1 no score depends on the others of its shard."""
    device: str = "cpu"
    """Where it computes, such as `cuda`; the CPU by default, so that it takes no room from actor
    and rollout workers."""
    dtype: Literal["float32", "bfloat16", "float16"] | None = None
    """Of its weights; default: as they were saved."""
    threads: int = Field(1, ge=1)
    """CPU threads, which decide how matrix kernels round."""

    @model_validator(mode="after")
    def _revisions_are_of_the_hub(self) -> Self:
        if self.revision is not None and Path(self.model).is_absolute():
            raise ValueError(
                f"revision = {self.revision!r} is for a model of the hub; leave it out for the "
                f"folder {self.model}"
            )
        return self

    @property
    def source(self) -> ModelConfig:
        return ModelConfig(name_or_path=self.model, revision=self.revision)

    @property
    def full_name(self) -> str:
        return self.model

    @property
    def short_name(self) -> str:
        return Path(self.model).name or self.model  # as in TRL

    @property
    def folders(self) -> tuple[str, ...]:
        return (self.model, self.tokenizer) if self.tokenizer else (self.model,)

    @property
    def needs_gpu(self) -> bool:
        return self.device.startswith("cuda")

    @property
    def is_model(self) -> bool:
        return True

    def with_template(self, options: dict[str, Any]) -> Self:
        if self.chat_template_kwargs is not None:
            return self
        return self.model_copy(update={"chat_template_kwargs": options})

    def load(self) -> RewardFunction:
        """Return the model itself. Raises `ModelError` and `RewardError` where it is none."""
        missing = [name for name in ("torch", "transformers") if find_spec(name) is None]
        if missing:
            raise RewardError(
                f"the interpreter of the reward functions has no {' and no '.join(missing)}, which "
                f"the reward model {self.model} needs; install it there, or leave "
                "compute.local.reward.python out"
            )
        if not is_hub_model(self.source):  # seen at once, before torch is imported
            path = Path(self.model)
            check_folder(path, called="the reward model", whole=self.tokenizer is None)
        made: RewardFunction = import_code(MODEL, "rewards.terms")(self)
        return made
