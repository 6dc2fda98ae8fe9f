"""Files that several ranks write at once, each its part of each tensor, where it belongs.

The rows of a tensor follow each other in a file as they do in memory, and where each tensor begins
follows from the shapes. So nobody needs more than the own part, and no rank waits for another:

    model.safetensors   | header | a: rank 0, rank 1 | b: rank 0, rank 1 |
    optimizer.pt        | pickle | 0.exp_avg: rank 0, rank 1 | ... | directory of the zip file |

Ranks on several machines have no file in common: rank 0 writes what it is sent, tensor by tensor.

The bytes are those that one rank would write; but torch.save's checksums of tensors, which nothing
reads, are 0. Rank 0 writes what is no tensor's.

Names used here that torch calls early prototypes: `torch.serialization.skip_data`, and
`_checkpoint_offset` of a storage that is loaded under `FakeTensorMode`.
"""

import json
import os
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.distributed.tensor import DTensor

from mortal_steps.errors import ActorStateError
from mortal_steps.policy.ranks.machines import machines
from mortal_steps.policy.ranks.parts import own_part, whole
from mortal_steps.policy.ranks.world import num_ranks, rank
from mortal_steps.store.files import writing

LENGTH_BYTES = 8
"""What a safetensors file begins with: the length of its header."""


def write_rows(path: Path, tensors: Mapping[str, torch.Tensor], dtype: torch.dtype | None) -> None:
    """Write this rank's part of the file that `save_file` would write of the tensors, with
    floating-point numbers cast to `dtype`. Raises `StoreError`."""
    header, offsets = _layout({name: cast_form(each, dtype) for name, each in tensors.items()})
    rest = [(0, header)] if rank() == 0 else []
    _write(path, [(offsets[name], each) for name, each in tensors.items()], rest, dtype)


def save_pickle(path: Path, content: Any) -> None:
    """Call `torch.save` for nested mappings and sequences of tensors; of those that are dealt out,
    write this rank's part. Raises `StoreError` then, and `ActorStateError` if others than numbers
    are not dealt out, which may differ from rank to rank."""
    dealt_out = [isinstance(tensor, DTensor) for tensor in tensors_in(content) if tensor.dim()]
    if not any(dealt_out):
        if rank() == 0:
            torch.save(content, path)
        return
    if not all(dealt_out):
        raise ActorStateError(
            f"{path.name} has tensors that are not dealt out to the ranks, beside others that are; "
            "choose another optimizer (training.trl.optim), or leave training.sharding out"
        )
    with tempfile.TemporaryDirectory() as folder, FakeTensorMode():
        empty = Path(folder, path.name)
        with torch.serialization.skip_data(materialize_fake_tensors=True):
            torch.save(mapped(_fake, content), empty)
        laid_out = list(tensors_in(torch.load(empty, weights_only=True)))
        offsets = [each.untyped_storage()._checkpoint_offset for each in laid_out]
        ends = [offset + each.nbytes for offset, each in zip(offsets, laid_out, strict=True)]
        # Nothing but the tensors is left out, in the order in which they lie there.
        gaps = zip([0, *ends], [*offsets, empty.stat().st_size], strict=True)
        rest = [(start, _read(empty, start, end)) for start, end in gaps] if rank() == 0 else []
    _write(path, zip(offsets, tensors_in(content), strict=True), rest)


def cast_form(tensor: torch.Tensor, dtype: torch.dtype | None = None) -> torch.Tensor:
    """Return a tensor without content in the shape and type that this one is written in."""
    kind = tensor.dtype if dtype is None or not tensor.is_floating_point() else dtype
    return torch.empty(tensor.shape, dtype=kind, device="meta")


def tensors_in(content: Any) -> Iterator[torch.Tensor]:
    """Yield the tensors of nested mappings and sequences, in their order."""
    if isinstance(content, torch.Tensor):
        yield content
    elif isinstance(content, Mapping | list | tuple):
        for value in content.values() if isinstance(content, Mapping) else content:
            yield from tensors_in(value)


def mapped(change: Callable[[torch.Tensor], torch.Tensor], content: Any) -> Any:
    """Return the same nested mappings and sequences with each tensor changed."""
    if isinstance(content, torch.Tensor):
        return change(content)
    if isinstance(content, Mapping):
        return {key: mapped(change, value) for key, value in content.items()}
    if isinstance(content, list | tuple):
        return type(content)(mapped(change, value) for value in content)
    return content


def _layout(forms: Mapping[str, torch.Tensor]) -> tuple[bytes, dict[str, int]]:
    """Return what a safetensors file of these tensors begins with, and where each begins."""
    # The library decides on the order, which depends on names and types.
    empty = save({name: torch.empty(0, dtype=each.dtype) for name, each in forms.items()})
    entries = json.loads(empty[LENGTH_BYTES:])
    header, ends = {"__metadata__": {"format": "pt"}}, [0]
    for name, entry in entries.items():
        ends.append(ends[-1] + forms[name].nbytes)
        header[name] = entry | {"shape": list(forms[name].shape), "data_offsets": ends[-2:]}
    text = json.dumps(header, separators=(",", ":"), ensure_ascii=False).encode()
    text += b" " * (-len(text) % LENGTH_BYTES)
    begin = len(text).to_bytes(LENGTH_BYTES, "little") + text
    return begin, {name: len(begin) + end for name, end in zip(entries, ends, strict=False)}


def _write(
    path: Path,
    tensors: Iterable[tuple[int, torch.Tensor]],
    rest: Iterable[tuple[int, bytes]],
    dtype: torch.dtype | None = None,
) -> None:
    """Write what begins at these bytes of a file, which other ranks are writing to."""
    gathers = machines().are_several
    if gathers and rank():
        for _, tensor in tensors:
            whole(tensor)
        return
    with writing(path):
        anew = os.O_TRUNC if num_ranks() == 1 else 0
        file = os.open(path, os.O_WRONLY | os.O_CREAT | anew, 0o666)
        try:
            for start, content in rest:
                _write_at(file, content, start)
            for start, tensor in tensors:
                part, first = (whole(tensor).detach(), 0) if gathers else own_part(tensor)
                form = cast_form(part, dtype)
                numbers = part.to("cpu", form.dtype).contiguous().view(-1)
                own = memoryview(numbers.view(torch.uint8).numpy())
                _write_at(file, own, start + first * form.itemsize)
        finally:
            os.close(file)


def _write_at(file: int, content: bytes | memoryview, start: int) -> None:
    left = memoryview(content)
    while left:
        written = os.pwrite(file, left, start)
        left, start = left[written:], start + written


def _read(path: Path, start: int, end: int) -> bytes:
    with path.open("rb") as file:
        file.seek(start)
        return file.read(end - start)


def _fake(tensor: torch.Tensor) -> torch.Tensor:
    return torch.empty(tensor.shape, dtype=tensor.dtype)
