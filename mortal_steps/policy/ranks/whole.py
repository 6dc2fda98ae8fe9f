"""A state that is dealt out to ranks, read as one: rank 0 gets whole tensors, one after the other,
in the CPU's memory, and the others take part.

Files and digests are those of a run with one rank, whatever reads or writes them.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Protocol

import torch
from torch.distributed.tensor import DTensor, distribute_tensor

from mortal_steps.policy.ranks.world import rank

PARTS = ("model", "ref_model", "optimizer")
"""What of a trainer is dealt out."""


class Gather(Protocol):
    """Has all ranks take part in what this one computes by `own`: reading a part of the state."""

    def __call__(self, part: str, own: Callable[[], Any]) -> Any: ...


def by_itself(part: str, own: Callable[[], Any]) -> Any:
    """The `Gather` of a rank that was told to take part."""
    return own()


def show_whole(trainer: Any, gather: Gather) -> None:
    """Have `state_dict` of each part of the trainer return whole tensors.

    accelerate leaves the optimizer what it kept of parameters before they were dealt out.
    """
    if getattr(trainer, "optimizer", None) is not None:
        inner = _without_wrapper(trainer.optimizer)
        for weight in inner.state.keys() - set(_weights(inner)):
            del inner.state[weight]
    for part in PARTS:
        holder = getattr(trainer, part, None)
        if holder is not None:
            dealt_out = type(holder).state_dict
            read = functools.partial(_whole_state, holder, dealt_out)
            holder.state_dict = functools.partial(_gathered, part, read, gather)


def _gathered(
    part: str, read: Callable[..., Any], gather: Gather, *args: Any, **kwargs: Any
) -> Any:
    return gather(part, functools.partial(read, *args, **kwargs))


def _whole_state(holder: Any, dealt_out: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """Return `holder`'s state with whole tensors; tied ones are one."""
    state = dealt_out(holder, *args, **kwargs)
    if not isinstance(holder, torch.nn.Module):
        return {**state, "state": {n: _whole_of(each) for n, each in state["state"].items()}}
    parameters = dict(holder.named_parameters(remove_duplicate=False))
    keys = {name: id(parameters.get(name, tensor)) for name, tensor in state.items()}
    held: dict[int, Any] = {}
    for name, tensor in state.items():
        if keys[name] not in held:
            held[keys[name]] = _whole(tensor)
    return {name: held[key] for name, key in keys.items()}


def _whole_of(each: Mapping[str, Any]) -> dict[str, Any]:
    return {name: _whole(value) for name, value in each.items()}


def _whole(tensor: Any) -> Any:
    if not isinstance(tensor, DTensor):
        return tensor
    found = tensor.detach().full_tensor()
    return found.cpu() if rank() == 0 else found.new_empty(0)


def is_dealt_out(state: Mapping[str, torch.Tensor]) -> bool:
    """Return whether this rank has a part of some of the tensors."""
    return any(isinstance(tensor, DTensor) for tensor in state.values())


def local_of(tensor: torch.Tensor) -> torch.Tensor:
    """Return the part of a tensor that this rank has."""
    return tensor.to_local() if isinstance(tensor, DTensor) else tensor


def put(tensors: Mapping[str, torch.Tensor], into: Mapping[str, torch.Tensor]) -> None:
    """Copy whole tensors into those of the same names, of which each rank has its part."""
    with torch.no_grad():
        for name, tensor in tensors.items():
            into[name].copy_(part_of(tensor, into[name]))


def part_of(tensor: Any, like: Any) -> Any:
    """Return this rank's part of a whole tensor that is dealt out as `like` is."""
    if not isinstance(like, DTensor) or not isinstance(tensor, torch.Tensor):
        return tensor
    if isinstance(tensor, DTensor) or tensor.shape != like.shape:
        return tensor  # such as the count of an optimizer's steps
    there = tensor.to(like.device)
    return distribute_tensor(there, like.device_mesh, like.placements, src_data_rank=None)


def deal_out(optimizer: Any) -> None:
    """Of an optimizer whose state is whole, leave each rank its part."""
    inner = _without_wrapper(optimizer)
    for weight in _weights(inner):
        state = inner.state.get(weight, {})
        for name, value in state.items():
            state[name] = part_of(value, weight)


def _without_wrapper(optimizer: Any) -> Any:
    """Return torch's optimizer, which accelerate has wrapped."""
    return getattr(optimizer, "optimizer", optimizer)


def _weights(optimizer: Any) -> Iterator[Any]:
    return itertools.chain(*(group["params"] for group in optimizer.param_groups))
