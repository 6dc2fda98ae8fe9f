"""The tensors of files, one by one, beside those that an engine holds."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import torch
from safetensors import safe_open

from mortal_steps.rollout.engines.tensor_shapes import model_files
from mortal_steps.store.digests import num_threads
from mortal_steps.store.tensor_layout import Layout, layout_of, type_name

Held = Mapping[str, torch.Tensor]
PIECE_BYTES = 16 << 20
BITS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
"""Types to compare bits in, by bytes: two zeros may differ, and no number is unequal to itself."""


def tensors_in(folder: Path) -> Iterator[tuple[str, torch.Tensor]]:
    """Name and tensor out of a model folder's mapped files: never two sets of weights in memory."""
    for path in model_files(folder):
        with safe_open(path, framework="pt") as file:
            for name in file.keys():  # noqa: SIM118
                yield name, file.get_tensor(name)


def is_held(held: torch.Tensor, given: torch.Tensor) -> bool:
    """Whether `held` is, to the bit, what a copy of `given` into it would have made it."""
    wanted = given.to(device=held.device, dtype=held.dtype)
    bits = BITS.get(held.dtype.itemsize, held.dtype)
    return bool(held.shape == wanted.shape and torch.equal(held.view(bits), wanted.view(bits)))


def read_files(held: Held, folder: Path) -> bool:
    """Read a model folder's files into the tensors that are held as in them, past any mapping;
    False, and nothing is read, where they are not. Raises `OSError` and `CorruptFileError`."""
    layouts = {path: layout_of(path) for path in sorted(folder.glob("*.safetensors"))}
    if not all(_is_as_in_file(held, layout) for layout in layouts.values()):
        return False
    for path, layout in layouts.items():
        _read_file(held, path, layout)
    return True


def _is_as_in_file(held: Held, layout: Layout) -> bool:
    """Whether the tensors of a file with this layout are held as they lie there: each in the CPU's
    memory by its name, of its type and shape, with nothing between them in the file."""
    end = len(layout.header)
    for place in layout.places:
        tensor = held.get(place.name)
        if tensor is None or not _lies_like(tensor, place.dtype, place.shape) or place.start != end:
            return False
        end += place.num_bytes
    return end == layout.size


def _read_file(held: Held, path: Path, layout: Layout) -> None:
    pieces = (
        (memory[begin : begin + PIECE_BYTES], place.start + begin)
        for place in layout.places
        for memory in [_bytes_in(held[place.name])]
        for begin in range(0, len(memory), PIECE_BYTES)
    )
    with path.open("rb", buffering=0) as file:

        def read(piece: tuple[np.ndarray, int]) -> None:
            rest, offset = piece[0].data, piece[1]
            while rest:
                count = os.preadv(file.fileno(), [rest], offset)
                if not count:
                    raise OSError(f"{path} ends before its tensors do")
                rest, offset = rest[count:], offset + count

        with ThreadPoolExecutor(num_threads(layout.size)) as threads:
            list(threads.map(read, pieces))


def _lies_like(tensor: torch.Tensor, dtype: str, shape: tuple[int, ...]) -> bool:
    return (
        tensor.device.type == "cpu"
        and type_name(tensor.dtype) == dtype
        and tuple(tensor.shape) == shape
        and tensor.is_contiguous()
    )


def _bytes_in(tensor: torch.Tensor) -> np.ndarray:
    """The tensor's own memory."""
    found: np.ndarray = tensor.detach().reshape(-1).view(torch.uint8).numpy()
    return found
