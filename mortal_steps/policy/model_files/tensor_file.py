"""Writing safetensors files: the bytes that the library writes, in one pass that also hashes them.

Here each tensor goes from where it lives to the file and its digest, one after the other. What the
library writes has to be read again to be hashed, and it takes more than twice the time to write.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

import torch
from blake3 import blake3

from mortal_steps.policy.model_files.staging import pieces_of
from mortal_steps.store.digests import BLAKE3, HashingFile, num_threads
from mortal_steps.store.tensor_layout import TYPE_NAMES, lay_out


def write_tensors(
    path: Path, tensors: Mapping[str, torch.Tensor], dtype: torch.dtype | None = None
) -> str:
    """Write a safetensors file; its digest. With `dtype` its floating-point tensors are cast, one
    after the other. Raises `OSError`, and `KeyError` for a type that the format has no name for."""
    with HashingFile(path) as file:
        for piece in _pieces(tensors, dtype):
            file.write(piece)
        file.flush()
        return file.digest


def digest_of_tensors(tensors: Mapping[str, torch.Tensor]) -> str:
    """Digest of the file that `write_tensors` would write."""
    size = sum(tensor.nbytes for tensor in tensors.values())
    hasher = blake3(max_threads=num_threads(size))
    for piece in _pieces(tensors):
        hasher.update(piece)
    return BLAKE3 + hasher.hexdigest()


def cast(tensor: torch.Tensor, dtype: torch.dtype | None) -> torch.Tensor:
    """The tensor in this type, if it holds floating-point numbers; itself without a type."""
    return tensor if dtype is None or not tensor.is_floating_point() else tensor.to(dtype)


def _pieces(
    tensors: Mapping[str, torch.Tensor], dtype: torch.dtype | None = None
) -> Iterator[bytes | memoryview]:
    """The bytes of the file: its header, then each tensor."""
    layout = lay_out(
        (name, TYPE_NAMES[_type_of(tensor, dtype)], tuple(tensor.shape))
        for name, tensor in tensors.items()
    )
    yield layout.header
    for place in layout.places:
        if tensors[place.name].numel():
            for piece in pieces_of(cast(tensors[place.name], dtype)):
                yield memoryview(piece.numpy())


def _type_of(tensor: torch.Tensor, dtype: torch.dtype | None) -> str:
    """torch's name of the type that a tensor is written in."""
    found = tensor.dtype if dtype is None or not tensor.is_floating_point() else dtype
    return str(found).removeprefix("torch.")
