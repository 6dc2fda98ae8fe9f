"""Where each tensor lies in a safetensors file: its header, written and read without the tensors.

    8 bytes   length of the header
    header    {"__metadata__": {"format": "pt"}, "a.weight": {"dtype": "F32", "shape": [2, 3],
              "data_offsets": [0, 24]}, ...}, filled up with spaces to a multiple of 8
    data      the tensors one after the other, the widest types first, then by name

The order and the filling are those of the safetensors library, so that the bytes are the same.
https://github.com/huggingface/safetensors#format
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from mortal_steps.errors import CorruptFileError

WIDTHS = {
    "BOOL": 1, "U8": 1, "I8": 1, "F8_E5M2": 1, "F8_E4M3": 1, "F8_E8M0": 1, "I16": 2, "U16": 2,
    "F16": 2, "BF16": 2, "I32": 4, "U32": 4, "F32": 4, "C64": 8, "F64": 8, "I64": 8, "U64": 8,
}  # fmt: skip
"""Bytes of each type's values, in the library's own order of types."""
TYPE_NAMES = {
    "bool": "BOOL", "uint8": "U8", "int8": "I8", "float8_e5m2": "F8_E5M2",
    "float8_e4m3fn": "F8_E4M3", "float8_e8m0fnu": "F8_E8M0", "int16": "I16", "uint16": "U16",
    "float16": "F16", "bfloat16": "BF16", "int32": "I32", "uint32": "U32", "float32": "F32",
    "complex64": "C64", "float64": "F64", "int64": "I64", "uint64": "U64",
}  # fmt: skip
"""Names of the types in a file, by torch's."""
LONGEST_HEADER = 100_000_000
"""As in the library."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Place:
    """One tensor of a file."""

    name: str
    dtype: str
    """A key of `WIDTHS`."""
    shape: tuple[int, ...]
    start: int
    """First byte, from the beginning of the file."""

    @property
    def num_bytes(self) -> int:
        return WIDTHS[self.dtype] * math.prod(self.shape)


@dataclass(frozen=True, kw_only=True, slots=True)
class Layout:
    """Everything in a file but the tensors' bytes."""

    header: bytes
    """The beginning of the file, its length included."""
    places: tuple[Place, ...]
    size: int
    """Bytes of the whole file."""


def type_name(dtype: object) -> str | None:
    """The name in a file of a type of torch's, if the format has one."""
    return TYPE_NAMES.get(str(dtype).removeprefix("torch."))


def lay_out(tensors: Iterable[tuple[str, str, tuple[int, ...]]]) -> Layout:
    """The layout of a file with tensors of these names, types and shapes."""
    ranks = {dtype: rank for rank, dtype in enumerate(WIDTHS)}
    ordered = sorted(tensors, key=lambda tensor: (-ranks[tensor[1]], tensor[0].encode()))
    entries: dict[str, object] = {"__metadata__": {"format": "pt"}}
    starts, offset = [], 0
    for name, dtype, shape in ordered:
        stop = offset + WIDTHS[dtype] * math.prod(shape)
        entries[name] = {"dtype": dtype, "shape": shape, "data_offsets": [offset, stop]}
        starts.append(offset)
        offset = stop
    text = json.dumps(entries, ensure_ascii=False, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    header = len(text).to_bytes(8, "little") + text
    places = tuple(
        Place(name=name, dtype=dtype, shape=shape, start=len(header) + start)
        for (name, dtype, shape), start in zip(ordered, starts, strict=True)
    )
    return Layout(header=header, places=places, size=len(header) + offset)


def layout_of(path: Path) -> Layout:
    """The layout of a file, of which only the header is read.

    Raises `CorruptFileError` for a file of another format, and `OSError`.
    """
    with path.open("rb", buffering=0) as file:
        size = os.fstat(file.fileno()).st_size
        length = file.read(8)
        begin = 8 + int.from_bytes(length, "little")
        header = length + (file.read(begin - 8) if begin <= min(size, LONGEST_HEADER) else b"")
    try:
        entries = json.loads(header[8:])
        entries.pop("__metadata__", None)
        places = []
        for name, entry in entries.items():
            start, stop = entry["data_offsets"]
            shape = tuple(entry["shape"])
            long = WIDTHS[entry["dtype"]] * math.prod(shape)
            if not 0 <= start <= stop <= size - begin or stop - start != long:
                raise ValueError(f"{name} lies from {start} to {stop}")
            place = Place(name=name, dtype=entry["dtype"], shape=shape, start=begin + start)
            places.append(place)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise CorruptFileError(f"{path} is no safetensors file: {error}") from None
    return Layout(header=header, places=tuple(places), size=size)
