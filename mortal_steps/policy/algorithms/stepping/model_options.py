"""Options of TRL's that not every model takes, held against the model before a worker starts."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from transformers import AutoModelForCausalLM, PreTrainedModel

from mortal_steps.config import ModelConfig, TrainingConfig
from mortal_steps.config.trl_options import loading_options
from mortal_steps.errors import ConfigError
from mortal_steps.models.hub import is_hub_model, tokenizer_folder
from mortal_steps.models.model_class import read_model_config, trained_class

CAST = "cast_lm_head_to_fp32"
ROUTER = "router_aux_loss_coef"
KERNELS = "use_kernels"
"""Of `model_init_kwargs`: it may download kernels, which only the actor is to do."""


def check_model_options(training: TrainingConfig, started: ModelConfig, *, here: bool) -> None:
    """Raise `ConfigError` for options that TRL cannot apply to the model, `ModelError` without its
    configuration. Loading is tried with a model that is `here`."""
    chosen = training.trl
    if here:
        _check_loading(chosen, started)
    if not chosen.get(CAST) and not chosen.get(ROUTER):
        return
    model = without_weights(started)
    kind = type(model).__name__
    if chosen.get(CAST) and (reason := _why_no_cast(model, training.use_lora)):
        raise ConfigError(f"training.trl.{CAST} = true: {reason} ({kind}); leave it out")
    coefficient = chosen.get(ROUTER)
    if coefficient and not hasattr(model.config.get_text_config(), "output_router_logits"):
        raise ConfigError(
            f"training.trl.{ROUTER} = {coefficient!r}: {kind} is no mixture of experts that "
            "returns its router's logits, so there is no loss to weight; leave it out"
        )


def _check_loading(trl: Mapping[str, Any], model: ModelConfig) -> None:
    """Raise `ConfigError` for arguments that transformers cannot load the model with."""
    chosen = loading_options(trl)
    options = {name: value for name, value in chosen.items() if name != KERNELS}
    if not options or model.new or is_hub_model(model):
        return
    remote = model.trust_remote_code
    shape = read_model_config(model.name_or_path, remote)
    options |= {"device_map": "meta", "trust_remote_code": remote}
    try:
        trained_class(shape).from_pretrained(model.name_or_path, **options)
    except (ImportError, OSError, RuntimeError, TypeError, ValueError) as error:
        raise ConfigError(
            f"training.trl.model_init_kwargs = {chosen!r}: transformers does not load "
            f"{model.name_or_path} with it: {error}"
        ) from error


def _why_no_cast(model: PreTrainedModel, is_adapted: bool) -> str | None:
    """Of the model's layers, TRL takes `lm_head` and, if that is tied, `model.embed_tokens`. In a
    model with an adapter, `model` is another one."""
    if not hasattr(model, "lm_head"):
        return "TRL looks for the layer lm_head, which the model does not have"
    if not model.config.get_text_config().tie_word_embeddings:
        return None
    if is_adapted:
        return "TRL cannot cast an output layer that is tied to the embeddings below a LoRA adapter"
    if not hasattr(getattr(model, "model", None), "embed_tokens"):
        return (
            "the output layer is tied to the embeddings, which TRL looks for in model.embed_tokens "
            "and the model has elsewhere"
        )
    return None


def without_weights(model: ModelConfig) -> PreTrainedModel:
    """Return the model on device `meta`. Raises `ModelError` if it cannot be made."""
    remote = model.trust_remote_code
    if model.new is not None:
        # Imported where used: few models are new.
        from mortal_steps.policy.starting_model.new_model import shape_of

        shape: Any = shape_of(model.new)
    else:
        shape = read_model_config(tokenizer_folder(model), remote)
    kind = trained_class(shape)
    with torch.device("meta"):
        if kind is AutoModelForCausalLM:
            built: PreTrainedModel = kind.from_config(shape, trust_remote_code=remote)
        else:
            built = kind(shape)
    return built
