"""`[model]`: which model is trained, and how it is made where it is made."""

from __future__ import annotations

import re
from typing import Annotated, Literal

from pydantic import Field, model_validator

from mortal_steps.config.field_metadata import STATE
from mortal_steps.config.section import LocalPath, Options, Section

COMMIT = re.compile(r"[0-9a-f]{40}")
"""A `revision` that never stands for other files."""


class NewModelConfig(Section):
    """`[model.new]`: build a small Qwen3-shaped model with a character tokenizer from a seed."""

    alphabet: str = "abcdefghijklmnopqrstuvwxyz =>:?().,ABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789'-\n"
    """Characters that the tokenizer knows; any other character becomes the unknown token."""
    words: tuple[str, ...] = ()
    """Longer texts that the tokenizer takes for one token each."""
    tool_calls: bool = False
    """Give the tokenizer a chat template with calls of tools and their results:
    `⟨call⟩add {"a": 1, "b": 2}⟨end⟩` and `⟨result⟩3`."""
    hidden_size: int = Field(64, ge=8)
    """Width of the model."""
    num_layers: int = Field(2, ge=1)
    """Number of transformer layers."""
    head_dim: int = Field(32, ge=8)
    """Size of an attention head. vLLM needs 32 or more: it has no CPU kernel for smaller heads."""
    intermediate_size: int = Field(128, ge=8)
    """Width of the MLP."""
    max_position_embeddings: int = Field(512, ge=8)
    """Context length in tokens."""

    @property
    def num_tokens(self) -> int:
        """Size of its vocabulary."""
        return len(self.alphabet) + len(self.words) + (6 if self.tool_calls else 3)

    @property
    def num_parameters(self) -> int:
        """Of the model that is built; output and input embeddings are the same."""
        width = self.hidden_size
        heads = max(1, width // self.head_dim) * self.head_dim
        attention = 4 * width * heads + 2 * self.head_dim
        layer = attention + 3 * width * self.intermediate_size + 2 * width
        embeddings = self.num_tokens * width
        return embeddings + self.num_layers * layer + width


class WarmStartConfig(Section):
    """`[model.warm_start]`: supervised steps before reinforcement begins, taken as
    `algorithm.type = "sft"` takes them. A run of its own with that has all of TRL's options."""

    steps: int = Field(50, ge=1)
    """Number of optimizer steps."""
    learning_rate: float = Field(2e-3, gt=0)
    """Learning rate of these steps."""
    batch_size: int = Field(64, ge=1)
    """Examples per optimizer step."""
    completion_column: str = "answer"
    """Dataset column that holds the text to imitate, or a dialogue: a list of messages, of which
    those of the assistant are imitated."""


class ModelConfig(Section):
    """`[model]`: which model is trained."""

    name_or_path: Annotated[LocalPath, STATE] = "Qwen/Qwen2.5-0.5B-Instruct"
    """A Hugging Face Hub name or a local folder. Leave it out beside `[model.new]`."""
    revision: Annotated[str | None, STATE] = None
    """Branch, tag or commit of a Hub model. A run keeps the commit with which it began."""
    max_model_len: int = Field(16384, ge=2)
    """Longest prompt plus completion, in tokens. If the model itself takes fewer tokens, that limit
    applies."""
    dtype: Annotated[Literal["float32", "bfloat16", "auto"], STATE] = "float32"
    """Data type of the weights, in training and in sampling. Keep float32 also on a GPU: matrices
    are multiplied in bfloat16 there anyway, and the weights themselves need float32 to take up
    small updates."""
    quantization: Annotated[Options, STATE] = Field(default_factory=dict)
    """QLoRA: arguments of transformers' BitsAndBytesConfig, such as `load_in_4bit = true`, with
    which the actor loads the model below the adapter. Rollout workers receive the model that it
    computes with, dequantized and merged with the adapter."""
    trust_remote_code: bool = False
    """Allow code that ships with the model to run."""
    new: Annotated[NewModelConfig | None, STATE] = None
    """Build a new model instead of loading one."""
    warm_start: Annotated[WarmStartConfig | None, STATE] = None
    """Train the model by supervision before reinforcement begins."""

    @model_validator(mode="after")
    def _check_one_model(self) -> ModelConfig:
        default = type(self).model_fields["name_or_path"].default
        if self.new is not None and self.name_or_path != default:
            raise ValueError(
                f"name_or_path = {self.name_or_path!r} names a model, and [model.new] builds "
                "another one; leave name_or_path out to train the new one, or remove [model.new] "
                "(on the command line: --set model={}) to train the named one"
            )
        return self

    @property
    def is_pinned(self) -> bool:
        return COMMIT.fullmatch(self.revision or "") is not None
