"""The tensors of files, one by one, beside those that an engine holds."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

import torch
from safetensors import safe_open


def tensors_in(folder: Path) -> Iterator[tuple[str, torch.Tensor]]:
    """Name and tensor out of a model folder's mapped files: never two sets of weights in memory."""
    for path in sorted(folder.glob("*.safetensors")):
        with safe_open(path, framework="pt") as file:
            for name in file.keys():  # noqa: SIM118
                yield name, file.get_tensor(name)


def is_held(held: torch.Tensor, given: torch.Tensor) -> bool:
    """Whether `held` is what a copy of `given` into it would have made it."""
    wanted = given.to(device=held.device, dtype=held.dtype)
    return bool(held.shape == wanted.shape and torch.equal(held, wanted))


def differing(
    held: Mapping[str, torch.Tensor], given: Iterable[tuple[str, torch.Tensor]]
) -> list[str]:
    """Names of tensors that are not held as they are given; those held by no such name are left
    out."""
    return sorted(
        name for name, tensor in given if name in held and not is_held(held[name], tensor)
    )
