"""Writing safetensors files: the bytes that the library writes, in one pass that also hashes them.

    8 bytes   length of the header
    header    {"__metadata__": {"format": "pt"}, "a.weight": {"dtype": "F32", "shape": [2, 3],
              "data_offsets": [0, 24]}, ...}, filled up with spaces to a multiple of 8
    data      the tensors one after the other, the widest types first, then by name

The order and the filling are the library's (https://github.com/huggingface/safetensors#format).
Here each tensor goes from where it lives to the file and its digest, one after the other. What the
library writes has to be read again to be hashed, and it takes more than twice the time to write.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping
from pathlib import Path

import torch
from blake3 import blake3

from mortal_steps.policy.model_files.staging import pieces_of
from mortal_steps.store.digests import BLAKE3, HashingFile, num_threads

TYPE_NAMES = {
    "bool": "BOOL", "uint8": "U8", "int8": "I8", "float8_e5m2": "F8_E5M2",
    "float8_e4m3fn": "F8_E4M3", "float8_e8m0fnu": "F8_E8M0", "int16": "I16", "uint16": "U16",
    "float16": "F16", "bfloat16": "BF16", "int32": "I32", "uint32": "U32", "float32": "F32",
    "complex64": "C64", "float64": "F64", "int64": "I64", "uint64": "U64",
}  # fmt: skip
"""Names of the types in a file by torch's, in the library's own order of types."""


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
    types = {
        name: tensor.dtype if dtype is None or not tensor.is_floating_point() else dtype
        for name, tensor in tensors.items()
    }
    ranks = {name: rank for rank, name in enumerate(TYPE_NAMES.values())}
    named = {name: TYPE_NAMES[str(kind).removeprefix("torch.")] for name, kind in types.items()}
    ordered = sorted(tensors, key=lambda name: (-ranks[named[name]], name.encode()))
    entries: dict[str, object] = {"__metadata__": {"format": "pt"}}
    offset = 0
    for name in ordered:
        shape = tuple(tensors[name].shape)
        stop = offset + types[name].itemsize * math.prod(shape)
        entries[name] = {"dtype": named[name], "shape": shape, "data_offsets": [offset, stop]}
        offset = stop
    header = json.dumps(entries, ensure_ascii=False, separators=(",", ":")).encode()
    header += b" " * (-len(header) % 8)
    yield len(header).to_bytes(8, "little") + header
    for name in ordered:
        if tensors[name].numel():
            for piece in pieces_of(cast(tensors[name], dtype)):
                yield memoryview(piece.numpy())
