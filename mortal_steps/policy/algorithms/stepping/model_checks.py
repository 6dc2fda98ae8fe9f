"""What can be wrong with the model that is trained: before the first step, and after any.

Padding: TRL pads prompts on the left and gives the model a mask, and no positions. Models with
learned positions (GPT-2) count the padding among them, and some recurrent ones (RWKV) read it. What
is trained then are other log-probabilities than those of the model, without an error.

A mixture's experts: TRL adds a loss that balances them where the model's configuration has a
coefficient for it. Some models of transformers have the coefficient and, as TRL calls them, do not
return the loss.

Private name used here: TRL `_get_per_token_logps_and_entropies`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from peft import PeftModel
from torch import nn

from mortal_steps.config.rollout import HALF_PRECISION_TOLERANCE, TOLERANCE
from mortal_steps.errors import ConfigError, DivergedError
from mortal_steps.policy.algorithms.stepping.loop import Stepped
from mortal_steps.policy.algorithms.stepping.scoring import without_dropout


def check_padding(trainer: Stepped, token_ids: Sequence[int]) -> str | None:
    """A sentence that says by how much the log-probabilities of these tokens change where the first
    half of them is padding; None where they do not. Leaves training mode as it is."""
    model: Any = trainer.model
    length = len(token_ids) // 2
    was_training = model.training
    without_dropout(model)
    try:
        alone = _trained_on(trainer, token_ids[length:], 0)
        padded = _trained_on(trainer, token_ids[length:], length)
    finally:
        model.train(was_training)
    found = (alone - padded).abs().max().item()
    precise = model.dtype == torch.float32 and not (trainer.args.bf16 or trainer.args.fp16)
    if found <= (TOLERANCE if precise else HALF_PRECISION_TOLERANCE):
        return None
    return (
        f"padding changes the log-probabilities that {model.config.model_type} is trained with, "
        f"by {found:.2g} nats for a first prompt: TRL pads the prompts of a batch to one length, "
        "and this kind of model takes padding for text. Train on prompts that all have the same "
        "number of tokens, or another model"
    )


def _trained_on(trainer: Any, token_ids: Sequence[int], padding: int) -> torch.Tensor:
    """Log-probabilities of all tokens but the first, as TRL's loss has them."""
    padding_id = trainer.processing_class.pad_token_id
    device = trainer.model.device
    ids = torch.tensor([[padding_id] * padding + list(token_ids)], device=device)
    mask = torch.tensor([[0] * padding + [1] * len(token_ids)], device=device)
    with torch.no_grad():
        found: torch.Tensor = trainer._get_per_token_logps_and_entropies(
            trainer.model, ids, mask, len(token_ids) - 1
        )[0]
    return found


def check_router_loss(trainer: Stepped) -> None:
    """Raise `ConfigError` if TRL adds that loss, and the model does not return it."""
    if not trainer.aux_loss_enabled:
        return
    model = trainer.model
    kind = type(model.get_base_model() if isinstance(model, PeftModel) else model)
    device = next(model.parameters()).device
    ids = torch.zeros((1, 2), dtype=torch.long, device=device)
    was_training = model.training
    without_dropout(model)
    try:
        with torch.no_grad(), torch.random.fork_rng():
            trainer._get_per_token_logps_and_entropies(
                model, ids, torch.ones_like(ids), 1, compute_aux_loss=True
            )
    except (AttributeError, IndexError, RuntimeError, TypeError, ValueError) as error:
        raise ConfigError(
            "training.trl.router_aux_loss_coef: the model's configuration has a coefficient of "
            f"{trainer.router_aux_loss_coef:g} for a loss that balances its experts, which "
            f"transformers' {kind.__name__} cannot compute ({type(error).__name__}: {error}); set "
            "training.trl.router_aux_loss_coef = 0.0 to train without it"
        ) from error
    finally:
        model.train(was_training)


def check_finite(model: nn.Module, step: int, told_by: Sequence[str]) -> None:
    """Raise `DivergedError` if a trained weight is infinite or no number.

    It reads all of them, and is called where metrics `told_by` that step were not finite. They may
    be so by themselves: with fp16, TRL skips an update whose gradient is not finite.
    """
    trained = ((name, each) for name, each in model.named_parameters() if each.requires_grad)
    broken = [name for name, each in trained if not each.isfinite().all()]
    if not broken:
        return
    more = f" and {len(broken) - 1} more" if len(broken) > 1 else ""
    raise DivergedError(
        f"step {step + 1}: training has diverged. The weights {broken[0]}{more} are not finite any "
        f"more, nor were {', '.join(told_by)}. Fork the run at a checkpoint before this step "
        "(`mortal fork`), with a lower training.learning_rate or training.trl.max_grad_norm"
    )
