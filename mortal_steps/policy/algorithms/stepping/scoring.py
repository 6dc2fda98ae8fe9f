"""Log-probabilities of the model that is trained, as an engine with its weights computes them."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch import nn

from mortal_steps.config.rollout import HALF_PRECISION_TOLERANCE, TOLERANCE
from mortal_steps.models.model_class import check_known
from mortal_steps.policy import private
from mortal_steps.policy.model_files.merging import is_quantized
from mortal_steps.policy.ranks.parts import is_dealt_out


def logprobs_of(
    model: Any, token_ids: Sequence[int], published_in: torch.dtype | None
) -> list[float]:
    """Log-probability (nats) of each token but the first, given those before it. Without dropout
    and autocast; with `published_in`, with weights rounded to that type. Leaves training mode and
    random streams as they are."""
    # What accelerate put autocast around, unless the model has to be gathered first.
    gathers = is_dealt_out(dict(model.named_parameters()))
    forward = model if gathers else private.forward_without_autocast(model)
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


@contextlib.contextmanager
def rounded(model: nn.Module, dtype: torch.dtype | None) -> Iterator[None]:
    """In the block, every module computes with its parameters rounded to `dtype`, in the type that
    they have. They are rounded while the module runs, so that no second model is in memory, and
    the parameters themselves are put back as they were. Without a type nothing is done.
    """
    kept: dict[nn.Module, list[tuple[nn.Parameter, torch.Tensor]]] = {}

    def begin(module: nn.Module, *_: Any) -> None:
        own = [p for p in module.parameters(recurse=False) if p.is_floating_point()]
        kept[module] = [(parameter, parameter.data) for parameter in own]
        for parameter in own:
            parameter.data = parameter.data.to(dtype).to(parameter.dtype)

    def end(module: nn.Module, *_: Any) -> None:
        for parameter, data in kept.pop(module, []):
            parameter.data = data

    hooks = []
    if dtype is not None:
        for module in model.modules():
            if any(True for _ in module.parameters(recurse=False)):
                hooks.append(module.register_forward_pre_hook(begin))
                hooks.append(module.register_forward_hook(end, always_call=True))
    try:
        yield
    finally:
        for hook in hooks:
            hook.remove()
        for module in reversed(list(kept)):
            end(module)


PROBE_TOKENS = 8


def padding_warnings(trainer: Any) -> list[str]:
    """Return a sentence for the trained model, and one for its teacher, if padding changes the
    log-probabilities that are trained.

    TRL pads prompts on the left, and gives the model a mask but no positions. Models with learned
    positions (GPT-2) count the padding, and some recurrent ones (RWKV) read it: they are trained
    with other log-probabilities than their own, without an error. Leaves training mode as it is.
    """
    if not trainer.algorithm.pads_left:
        return []
    models = (trainer.model, getattr(trainer, "teacher_model", None))
    return [found for model in models if model and (found := _padding_warning(trainer, model))]


def _padding_warning(trainer: Any, model: Any) -> str | None:
    ids = [index % model.config.get_text_config().vocab_size for index in range(PROBE_TOKENS)]
    was_training = model.training
    without_dropout(model)
    try:
        alone, padded = (_trained_on(trainer, model, ids, padding) for padding in (0, PROBE_TOKENS))
    finally:
        model.train(was_training)
    found = (alone - padded).abs().max().item()
    precise = model.dtype == torch.float32 and not (trainer.args.bf16 or trainer.args.fp16)
    if found <= (TOLERANCE if precise else HALF_PRECISION_TOLERANCE):
        return None
    return (
        f"padding changes the log-probabilities that {model.config.model_type} is trained with, "
        f"by {found:.2g} nats for {PROBE_TOKENS} tokens: TRL pads the prompts of a batch to one "
        "length, and this kind of model takes padding for text. Train on prompts that all have the "
        "same number of tokens, or another model"
    )


def _trained_on(trainer: Any, model: Any, token_ids: Sequence[int], padding: int) -> torch.Tensor:
    """Return the log-probabilities of all tokens but the first, as TRL's loss has them."""
    padding_id, device = trainer.processing_class.pad_token_id, model.device
    ids = torch.tensor([[padding_id] * padding + list(token_ids)], device=device)
    mask = torch.tensor([[0] * padding + [1] * len(token_ids)], device=device)
    with torch.no_grad():
        count = len(token_ids) - 1
        found: torch.Tensor = private.trained_logprobs(trainer, model, ids, mask, count)
    return found
