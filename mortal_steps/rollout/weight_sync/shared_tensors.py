"""The tensors of a safetensors file in memory, as torch sees them: no copies."""

from __future__ import annotations

import math

import torch

from mortal_steps.store.tensor_layout import Layout

DTYPES = {
    "BOOL": torch.bool,
    "U8": torch.uint8,
    "I8": torch.int8,
    "F8_E5M2": torch.float8_e5m2,
    "F8_E4M3": torch.float8_e4m3fn,
    "F8_E8M0": torch.float8_e8m0fnu,
    "I16": torch.int16,
    "U16": torch.uint16,
    "F16": torch.float16,
    "BF16": torch.bfloat16,
    "I32": torch.int32,
    "U32": torch.uint32,
    "F32": torch.float32,
    "C64": torch.complex64,
    "F64": torch.float64,
    "I64": torch.int64,
    "U64": torch.uint64,
}
"""torch's types by their names in a file."""
NAMES = {dtype: name for name, dtype in DTYPES.items()}


def views(content: memoryview, layout: Layout) -> dict[str, torch.Tensor]:
    """Each tensor by name; writing to it writes to `content`."""
    return {
        place.name: torch.frombuffer(
            content, dtype=DTYPES[place.dtype], count=math.prod(place.shape), offset=place.start
        ).view(place.shape)
        if math.prod(place.shape)
        else torch.empty(place.shape, dtype=DTYPES[place.dtype])
        for place in layout.places
    }
