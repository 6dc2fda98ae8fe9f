"""Random streams that training draws from, and kernels that compute the same bits again."""

from __future__ import annotations

import hashlib
import os
import random

import numpy
import torch


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
        torch.use_deterministic_algorithms(True, warn_only=True)
        torch.utils.deterministic.fill_uninitialized_memory = False
