"""Log-probabilities of the model that is trained, as an engine with its weights computes them.

Private name used here: accelerate `_original_forward` of a model.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from mortal_steps.models.model_class import check_known
from mortal_steps.policy.algorithms.stepping.rounding import rounded
from mortal_steps.policy.model_files.merging import is_quantized


def logprobs_of(
    model: Any, token_ids: Sequence[int], published_in: torch.dtype | None
) -> list[float]:
    """Log-probability (nats) of each token but the first, given those before it.

    Without dropout and autocast; with `published_in`, with weights rounded to that type. Leaves
    training mode and random streams as they are.
    """
    forward = getattr(model, "_original_forward", model)  # what accelerate put autocast around
    was_training = model.training
    check_known(token_ids, model)
    ids = torch.tensor([list(token_ids)], device=model.device)
    without_dropout(model)
    try:
        with torch.no_grad(), rounded(model, published_in):
            logits = forward(input_ids=ids, use_cache=False).logits[0, :-1].float()
    finally:
        model.train(was_training)
    found = logits.log_softmax(-1).gather(1, ids[0, 1:, None]).squeeze(1)
    return [float(logprob) for logprob in found.tolist()]


def without_dropout(model: Any) -> None:
    """Put the model into evaluation mode. Quantized layers, which have no dropout, stay in training
    mode: on a CPU, bitsandbytes would rearrange their weights for another kernel."""
    model.eval()
    for layer in filter(is_quantized, model.modules()):
        layer.train()
