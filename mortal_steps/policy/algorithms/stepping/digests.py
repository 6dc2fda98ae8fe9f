"""Digests of what an actor holds: its weights and the state of its optimizer.

They cover the tensors themselves, under the names of the modules, so two states can be compared
whatever files they came from. The algorithm is xxh3 and not sha256, because weights are hashed in
every step and nobody forges them.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from peft import PeftModel
from torch import nn
from xxhash import xxh3_128


def weights_digest(model: nn.Module) -> str:
    """Digest of the trained tensors: all of them, or those of the adapter if there is one."""
    return digest(trained_tensors(model))


def trained_tensors(model: nn.Module) -> dict[str, torch.Tensor]:
    """The trained tensors and buffers by module name. A base model under an adapter is not
    trained."""
    if not isinstance(model, PeftModel):
        return dict(model.state_dict())
    trained = {name for name, tensor in model.named_parameters() if tensor.requires_grad}
    trained |= {name for name, _ in model.named_buffers()}
    return {name: tensor for name, tensor in model.state_dict().items() if name in trained}


def digest(content: Any) -> str:
    """Digest of nested mappings and sequences of tensors, numbers, texts and None."""
    hasher = xxh3_128()
    _feed(hasher, content)
    return hasher.hexdigest()


def _feed(hasher: xxh3_128, content: Any) -> None:
    if isinstance(content, torch.Tensor):
        hasher.update(f"tensor {content.dtype} {list(content.shape)};".encode())
        if content.numel():
            hasher.update(memoryview(_bytes_of(content)))
    elif isinstance(content, Mapping):
        hasher.update(f"mapping {len(content)};".encode())
        for key in sorted(content, key=str):
            hasher.update(f"{json.dumps(str(key))};".encode())
            _feed(hasher, content[key])
    elif isinstance(content, Sequence) and not isinstance(content, str):
        hasher.update(f"sequence {len(content)};".encode())
        for item in content:
            _feed(hasher, item)
    else:
        hasher.update(f"{content!r};".encode())


def _bytes_of(tensor: torch.Tensor) -> Any:
    flat = tensor.detach().cpu().contiguous().reshape(-1)
    return flat.view(torch.uint8).numpy()
