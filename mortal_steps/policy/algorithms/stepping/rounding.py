"""A forward pass with the weights that engines are given in a smaller type."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import torch
from torch import nn


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
