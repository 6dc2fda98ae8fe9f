"""Digests of what an actor holds: its weights and the state of its optimizer.

They cover the tensors themselves, under the names of the modules, so two states can be compared
whatever files they came from and whatever device they are on. On a GPU nothing but a few numbers of
each tensor is copied (`tensor_digests`): weights are digested in every step, and nobody forges
them.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from peft import PeftModel
from torch import nn

from mortal_steps.policy.ranks.parts import sums_of_parts
from mortal_steps.rollout.weight_sync.tensor_digests import digest_of


def weights_digest(model: nn.Module) -> str:
    """Digest of the trained tensors: all of them, or those of the adapter if there is one."""
    return digest(trained_tensors(model))


def trained_tensors(model: nn.Module) -> dict[str, torch.Tensor]:
    """Return trained tensors and buffers by module name, without an adapter's base."""
    if not isinstance(model, PeftModel):
        return dict(model.state_dict())
    trained = {name for name, tensor in model.named_parameters() if tensor.requires_grad}
    trained |= {name for name, _ in model.named_buffers()}
    return {name: tensor for name, tensor in model.state_dict().items() if name in trained}


def digest(content: Any) -> str:
    """Digest of nested mappings and sequences of tensors, numbers, texts and None."""
    texts: list[str] = []
    tensors: list[torch.Tensor] = []
    _describe(content, texts, tensors)
    forms = zip(tensors, sums_of_parts(tensors), strict=True)
    digests = [digest_of(tensor.dtype, tuple(tensor.shape), each) for tensor, each in forms]
    return hashlib.blake2b(";".join([*texts, *digests]).encode(), digest_size=16).hexdigest()


def _describe(content: Any, texts: list[str], tensors: list[torch.Tensor]) -> None:
    if isinstance(content, torch.Tensor):
        texts.append("tensor")
        tensors.append(content)
    elif isinstance(content, Mapping):
        texts.append(f"mapping {len(content)}")
        for key in sorted(content, key=str):
            texts.append(json.dumps(str(key)))
            _describe(content[key], texts, tensors)
    elif isinstance(content, Sequence) and not isinstance(content, str):
        texts.append(f"sequence {len(content)}")
        for item in content:
            _describe(item, texts, tensors)
    else:
        texts.append(repr(content))
