"""Attention on a GPU that computes the same bits again.

torch has several fused kernels for it. The fastest add gradients up in any order. If torch is told
to warn of kernels that do not repeat their bits, it takes these, although it has others. If it is
told to refuse them, it takes the others, and ends a run at any operation that has none. So torch
refuses them while attention runs, and warns everywhere else:

    forward     warns | refuses: attention     | warns
    backward    warns | refuses: its gradients | warns

Other implementations of transformers (`attn_implementation`) do not come by here.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import torch
from transformers import AttentionInterface
from transformers.integrations.sdpa_attention import sdpa_attention_forward


def attend_reproducibly() -> None:
    """Let every model of this process that attends with `sdpa` do so as described above."""
    AttentionInterface.register("sdpa", _attention)


def _attention(module: Any, query: Any, key: Any, value: Any, *args: Any, **kwargs: Any) -> Any:
    """As transformers' own."""
    if not torch.are_deterministic_algorithms_enabled():
        return sdpa_attention_forward(module, query, key, value, *args, **kwargs)
    with _refusing():
        output, weights = sdpa_attention_forward(module, query, key, value, *args, **kwargs)
    if output.requires_grad:
        output.register_hook(_refuse)
        for given in (query, key, value):
            if given.requires_grad:
                given.register_hook(_warn)
    return output, weights


@contextlib.contextmanager
def _refusing() -> Iterator[None]:
    warned = torch.is_deterministic_algorithms_warn_only_enabled()
    torch.use_deterministic_algorithms(True)
    try:
        yield
    finally:
        torch.use_deterministic_algorithms(True, warn_only=warned)


def _refuse(gradient: torch.Tensor) -> None:
    """Called with the gradient of attention's output, before it goes back through attention."""
    torch.use_deterministic_algorithms(True)


def _warn(gradient: torch.Tensor) -> None:
    """Called with the gradient of what attention was given."""
    torch.use_deterministic_algorithms(True, warn_only=True)
