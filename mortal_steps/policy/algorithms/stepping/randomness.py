"""Random streams that training draws from, and kernels that compute the same bits again."""

from __future__ import annotations

import contextlib
import hashlib
import os
import random
from collections.abc import Iterator

import numpy
import torch

from mortal_steps.policy.algorithms.stepping.attention import attend_reproducibly


def seed_everything(seed: int) -> None:
    """Seed Python's, numpy's and torch's random streams."""
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
    """Let CUDA compute the same bits again. Where an operation has no such kernel, torch warns and
    a replay may differ in the last bits."""
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
