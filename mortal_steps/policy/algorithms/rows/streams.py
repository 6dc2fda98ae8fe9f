"""The random streams that one trainer draws from.

    S(0)     as they are where `Trainer.train()` reaches `on_train_begin`
    step t   the first of an epoch: the seed that a DataLoader draws, then what the sampler draws;
             then what forward and backward draw, one micro-batch after the other;
             then a DataLoader's seed for each set of rows that TRL would evaluate here
    S(t+1)   what is left

All of it is decided by the step's number. Whatever else draws in this process, draws from the
streams of the process.
"""

from __future__ import annotations

import contextlib
import hashlib
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy
import torch


class Streams:
    """The streams, as they were when this was made: torch's on the CPU and the GPU, Python's and
    numpy's."""

    def __init__(self) -> None:
        self._kept = _now()

    @contextlib.contextmanager
    def drawn_from(self) -> Iterator[None]:
        """Let everything in the block draw from these streams; what it draws is gone."""
        with self._swapped_in():
            yield
            self._kept = _now()

    @contextlib.contextmanager
    def looked_at(self) -> Iterator[None]:
        """Let everything in the block draw from copies of these streams."""
        with self._swapped_in():
            yield

    @contextlib.contextmanager
    def _swapped_in(self) -> Iterator[None]:
        before = _now()
        _put(self._kept)
        try:
            yield
        finally:
            _put(before)

    def save(self, path: Path) -> None:
        torch.save(self._kept, path)

    def load(self, path: Path) -> None:
        # The generators of Python and numpy are tuples and arrays; nobody else writes the file.
        self._kept = torch.load(path, weights_only=False)

    def digest(self) -> str:
        cpu, gpu, python, from_numpy = self._kept
        sha256 = hashlib.sha256(cpu.numpy().tobytes())
        if gpu is not None:
            sha256.update(gpu.numpy().tobytes())
        sha256.update(repr(python).encode())
        sha256.update(repr((from_numpy[0], from_numpy[1].tobytes(), *from_numpy[2:])).encode())
        return sha256.hexdigest()


def draw_loader_seed() -> None:
    """Draw what every DataLoader draws from torch's stream when it is iterated over."""
    torch.empty((), dtype=torch.int64).random_()


def _now() -> tuple[Any, ...]:
    gpu = torch.cuda.get_rng_state() if torch.cuda.is_available() else None
    return torch.get_rng_state(), gpu, random.getstate(), numpy.random.get_state()


def _put(streams: tuple[Any, ...]) -> None:
    cpu, gpu, python, from_numpy = streams
    torch.set_rng_state(cpu)
    if gpu is not None:
        torch.cuda.set_rng_state(gpu)
    random.setstate(python)
    numpy.random.set_state(from_numpy)
