"""Options of TRL's that not every model takes, held against the model before a worker starts."""

from __future__ import annotations

from transformers import PreTrainedModel

from mortal_steps.config import RunConfig
from mortal_steps.errors import ConfigError
from mortal_steps.policy.algorithms.stepping.without_weights import without_weights

CAST = "cast_lm_head_to_fp32"
ROUTER = "router_aux_loss_coef"


def check_model_options(config: RunConfig) -> None:
    """Raise `ConfigError` for an option that TRL cannot apply to the model, and `ModelError` if the
    model's configuration cannot be read."""
    chosen = config.training.trl
    if not chosen.get(CAST) and not chosen.get(ROUTER):
        return
    model = without_weights(config.model)
    kind = type(model).__name__
    if chosen.get(CAST) and (reason := _why_no_cast(model, config.training.use_lora)):
        raise ConfigError(f"training.trl.{CAST} = true: {reason} ({kind}); leave it out")
    coefficient = chosen.get(ROUTER)
    if coefficient and not hasattr(model.config.get_text_config(), "output_router_logits"):
        raise ConfigError(
            f"training.trl.{ROUTER} = {coefficient!r}: {kind} is no mixture of experts that "
            "returns its router's logits, so there is no loss to weight; leave it out"
        )


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
