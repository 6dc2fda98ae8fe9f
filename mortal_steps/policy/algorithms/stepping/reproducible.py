"""Random streams that training draws from, and kernels that compute the same bits again.

torch has several fused kernels for attention on a GPU. The fastest add gradients up in any order.
If torch is told to warn of kernels that do not repeat their bits, it takes these, although it has
others. If it is told to refuse them, it takes the others, and ends a run at any operation that has
none. So torch refuses them while attention runs, and warns everywhere else:

    forward     warns | refuses: attention     | warns
    backward    warns | refuses: its gradients | warns

Other implementations of transformers (`attn_implementation`) do not come by here.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import random
from collections.abc import Iterator
from typing import Any

import numpy
import torch
from transformers import AttentionInterface
from transformers.integrations.sdpa_attention import sdpa_attention_forward


def seed_everything(seed: int) -> None:
    random.seed(seed)
    numpy.random.seed(seed % 2**32)
    torch.manual_seed(seed)


def streams_digest() -> str:
    """sha256 of torch's random streams as they are."""
    streams = [torch.get_rng_state().numpy().tobytes()]
    if torch.cuda.is_available():
        streams.append(torch.cuda.get_rng_state().numpy().tobytes())
    return hashlib.sha256(b"".join(streams)).hexdigest()


def prefer_reproducible_kernels() -> None:
    """Let CUDA repeat its bits; torch warns of operations without such a kernel."""
    if torch.cuda.is_available():
        os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
        os.environ["FLASH_ATTENTION_DETERMINISTIC"] = "1"  # of the package flash-attn
        torch.use_deterministic_algorithms(True, warn_only=True)
        torch.utils.deterministic.fill_uninitialized_memory = False
        attend_reproducibly()


@contextlib.contextmanager
def reproducible_kernels() -> Iterator[None]:
    """`prefer_reproducible_kernels` for a block; after it, torch chooses as before."""
    chosen = torch.are_deterministic_algorithms_enabled()
    warned = torch.is_deterministic_algorithms_warn_only_enabled()
    prefer_reproducible_kernels()
    try:
        yield
    finally:
        torch.use_deterministic_algorithms(chosen, warn_only=warned)


def attend_reproducibly() -> None:
    """Let every model of this process that attends with `sdpa` do so as described above."""
    AttentionInterface.register("sdpa", _attention)


def _attention(module: Any, query: Any, key: Any, value: Any, *args: Any, **kwargs: Any) -> Any:
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
    """Refuse other kernels from here: the gradient of attention's output goes back next."""
    torch.use_deterministic_algorithms(True)


def _warn(gradient: torch.Tensor) -> None:
    """Warn again: the gradient has passed attention."""
    torch.use_deterministic_algorithms(True, warn_only=True)
