"""Writing safetensors files: the bytes that the library writes, in one pass that also hashes them.

Here each tensor goes from where it lives to the file and its digest, one after the other. What the
library writes has to be read again to be hashed, and it takes more than twice the time to write.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Iterator, Mapping
from pathlib import Path

import torch
from blake3 import blake3

from mortal_steps.store.digests import BLAKE3, num_threads
from mortal_steps.store.hashing_file import HashingFile

METADATA = {"format": "pt"}
"""As transformers writes it."""

NAMES = {
    torch.bool: "BOOL",
    torch.uint8: "U8",
    torch.int8: "I8",
    torch.float8_e5m2: "F8_E5M2",
    torch.float8_e4m3fn: "F8_E4M3",
    torch.float8_e8m0fnu: "F8_E8M0",
    torch.int16: "I16",
    torch.uint16: "U16",
    torch.float16: "F16",
    torch.bfloat16: "BF16",
    torch.int32: "I32",
    torch.uint32: "U32",
    torch.float32: "F32",
    torch.complex64: "C64",
    torch.float64: "F64",
    torch.int64: "I64",
    torch.uint64: "U64",
}
"""What the format calls a type. Files have the later ones first."""

_RANK = {dtype: rank for rank, dtype in enumerate(NAMES)}


def write_tensors(path: Path, tensors: Mapping[str, torch.Tensor]) -> str:
    """Write a safetensors file; its digest. Raises `OSError`, and `KeyError` for a type that the
    format has no name for."""
    with HashingFile(path) as file:
        for piece in _pieces(tensors):
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


def _pieces(tensors: Mapping[str, torch.Tensor]) -> Iterator[bytes | memoryview]:
    """The bytes of the file: its header, then each tensor."""
    names = sorted(tensors, key=lambda name: (-_RANK[tensors[name].dtype], name.encode()))
    header: dict[str, object] = {"__metadata__": METADATA}
    end = 0
    for name in names:
        tensor = tensors[name]
        begin, end = end, end + tensor.nbytes
        header[name] = {
            "dtype": NAMES[tensor.dtype],
            "shape": list(tensor.shape),
            "data_offsets": [begin, end],
        }
    text = json.dumps(header, ensure_ascii=False, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    yield struct.pack("<Q", len(text)) + text
    for name in names:
        if tensors[name].numel():
            yield _bytes_of(tensors[name])


def _bytes_of(tensor: torch.Tensor) -> memoryview:
    """Without a copy where it lies in the CPU's memory as it is written."""
    flat = tensor.detach().cpu().contiguous().reshape(-1)
    return memoryview(flat.view(torch.uint8).numpy())
