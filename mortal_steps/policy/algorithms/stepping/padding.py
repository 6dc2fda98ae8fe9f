"""Does a model compute the same for a prompt that TRL pads to the length of a longer one?

TRL pads prompts on the left and gives the model a mask, and no positions. Models with learned
positions (GPT-2) count the padding among them, and some recurrent ones (RWKV) read it. What is
trained then are other log-probabilities than those of the model, without an error.

Private name used here: TRL `_get_per_token_logps_and_entropies`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from mortal_steps.config.rollout import HALF_PRECISION_TOLERANCE, TOLERANCE
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
