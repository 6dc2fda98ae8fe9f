"""One copy of a model in a machine's memory while several ranks there load it.

To be dealt out, a model has to be whole on each rank, which keeps its part of it. The first rank of
a machine reads the files and puts the weights into memory without a name; the others, who get it
over their connections, map the same pages.

transformers' own way (`cpu_ram_efficient_loading`) reads the files once, but fills the memory of
each rank with zeros; accelerate's part of it takes no model with persistent buffers, and TRL's
reference model none of it.
"""

from __future__ import annotations

import contextlib
import mmap
import os
import socket
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from transformers import PreTrainedModel

from mortal_steps.errors import ModelError
from mortal_steps.policy.ranks.world import is_first_here, neighbours
from mortal_steps.system.frames import receive_frame, send_frame

ALIGNMENT = 64


@dataclass(frozen=True, kw_only=True, slots=True)
class Place:
    """Where the numbers of a parameter or buffer lie."""

    offset: int
    """In bytes."""
    dtype: torch.dtype
    shape: tuple[int, ...]


@contextlib.contextmanager
def loading_once() -> Iterator[None]:
    """In the block, which all ranks enter, what transformers loads is read by the first rank of a
    machine alone."""
    original = PreTrainedModel.__dict__["from_pretrained"]
    load = _loaded if is_first_here() else _mapped

    def from_pretrained(kind: type[PreTrainedModel], *args: Any, **options: Any) -> Any:
        return load(original.__func__, kind, *args, **options)

    PreTrainedModel.from_pretrained = classmethod(from_pretrained)
    try:
        yield
    finally:
        PreTrainedModel.from_pretrained = original


def _loaded(load: Any, *args: Any, **options: Any) -> PreTrainedModel:
    """Load a model, and let the others have it."""
    places, descriptor, stream = None, None, torch.get_rng_state()
    try:
        model: PreTrainedModel = load(*args, **options)
        places, descriptor = _share(model)
    finally:  # after an error, they wait no longer
        drawn = None if torch.get_rng_state().equal(stream) else torch.get_rng_state()
        for connection in neighbours:
            send_frame(connection, (places, drawn))
            if descriptor is not None:
                socket.send_fds(connection, [b"-"], [descriptor])
    os.close(descriptor)
    return model


def _share(model: PreTrainedModel) -> tuple[dict[str, Place], int]:
    """Move the parameters to memory that others can map, one after the other, and copy the buffers
    there; return where they lie, and the memory's descriptor."""
    tensors = _tensors_of(model)
    places, offsets, size = {}, dict[int, int](), 0
    for name, tensor in tensors.items():
        if id(tensor) not in offsets:
            offsets[id(tensor)] = size
            size += max(-(-tensor.nbytes // ALIGNMENT), 1) * ALIGNMENT
        offset = offsets[id(tensor)]
        places[name] = Place(offset=offset, dtype=tensor.dtype, shape=tuple(tensor.shape))
    descriptor = os.memfd_create("model")
    os.ftruncate(descriptor, max(size, 1))
    memory = mmap.mmap(descriptor, max(size, 1))
    with torch.no_grad():
        for name, tensor in tensors.items():
            there = _view(memory, places[name])
            there.copy_(tensor)
            if isinstance(tensor, nn.Parameter):
                tensor.data = there
    return places, descriptor


def _mapped(load: Any, *args: Any, **options: Any) -> PreTrainedModel:
    """Build a model without weights, and give it those that the first rank has loaded."""
    try:
        model: PreTrainedModel = load(*args, **options | {"device_map": "meta"})
    finally:  # after an error, too: they have been sent, and orders follow
        places, memory, drawn = _received()
    if drawn is not None:  # for what the files do not have, as the head of a reward model
        torch.set_rng_state(drawn)
    shared: dict[int, nn.Parameter] = {}
    for name, tensor in _tensors_of(model).items():
        path, _, leaf = name.rpartition(".")
        module, place = model.get_submodule(path), places[name]
        if not isinstance(tensor, nn.Parameter):
            setattr(module, leaf, _view(memory, place).clone())
            continue
        if place.offset not in shared:
            view = _view(memory, place)
            shared[place.offset] = nn.Parameter(view, requires_grad=tensor.requires_grad)
        setattr(module, leaf, shared[place.offset])
    return model


def _received() -> tuple[dict[str, Place], mmap.mmap, torch.Tensor | None]:
    """Return where the weights lie, in which memory, and torch's random stream if the first rank
    has drawn from it, which each rank would have done as well."""
    (connection,) = neighbours
    places, drawn = receive_frame(connection)
    if places is None:
        raise ModelError("the first rank of this machine has not loaded the model")
    _, (descriptor, *_), _, _ = socket.recv_fds(connection, 1, 1)
    memory = mmap.mmap(descriptor, 0, access=mmap.ACCESS_COPY)
    os.close(descriptor)
    return places, memory, drawn


def _tensors_of(model: nn.Module) -> dict[str, torch.Tensor]:
    return {
        **dict(model.named_parameters(remove_duplicate=False)),
        **dict(model.named_buffers(remove_duplicate=False)),
    }


def _view(memory: mmap.mmap, place: Place) -> torch.Tensor:
    count = torch.Size(place.shape).numel()
    if not count:
        return torch.empty(place.shape, dtype=place.dtype)
    found = torch.frombuffer(memory, dtype=place.dtype, count=count, offset=place.offset)
    return found.view(place.shape)
