"""A run's model without weights, on which names and layers can be looked up."""

from __future__ import annotations

from typing import Any

import torch
from transformers import AutoConfig, AutoModelForCausalLM, PreTrainedModel

from mortal_steps.config import ModelConfig
from mortal_steps.models.hub import tokenizer_folder
from mortal_steps.models.model_class import trained_class


def without_weights(model: ModelConfig) -> PreTrainedModel:
    """The model as it is trained, its parameters on torch's device `meta`. Raises `ModelError` if
    its configuration cannot be read."""
    remote = model.trust_remote_code
    if model.new is not None:
        # Imported where used: few models are new.
        from mortal_steps.policy.starting_model.new_model import shape_of

        shape: Any = shape_of(model.new)
    else:
        shape = AutoConfig.from_pretrained(tokenizer_folder(model), trust_remote_code=remote)
    kind = trained_class(shape)
    with torch.device("meta"):
        if kind is AutoModelForCausalLM:
            built: PreTrainedModel = kind.from_config(shape, trust_remote_code=remote)
        else:
            built = kind(shape)
    return built
