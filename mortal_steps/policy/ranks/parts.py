"""A state that is dealt out to ranks: of each tensor, a rank has rows that follow each other.

    weight[5, 3] on 2 ranks    rank 0: rows 0..2, elements 0..8    rank 1: rows 3..4, elements 9..14

Files and digests are those of a run with one rank, whatever reads or writes them.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import numpy as np
import torch
from torch.distributed.tensor import DTensor, distribute_tensor

from mortal_steps.policy.ranks.world import num_ranks, rank
from mortal_steps.rollout.weight_sync.tensor_digests import MODULUS, Sums, read_sums, sums_of


def is_dealt_out(state: Mapping[str, torch.Tensor]) -> bool:
    """Return whether this rank has a part of some of the tensors."""
    return any(isinstance(tensor, DTensor) for tensor in state.values())


def local_of(tensor: torch.Tensor) -> torch.Tensor:
    """Return the part of a tensor that this rank has."""
    return tensor.to_local() if isinstance(tensor, DTensor) else tensor


def own_part(tensor: torch.Tensor) -> tuple[torch.Tensor, int]:
    """Return the part of a tensor that this rank answers for, and the number of the element that it
    begins with. For what is not dealt out, that is rank 0."""
    if not isinstance(tensor, DTensor):
        return (tensor.detach() if rank() == 0 else tensor.new_empty(0)), 0
    rows = max(len(tensor), 1)
    first = min(-(-rows // num_ranks()) * rank(), rows)  # as torch.chunk, and so FSDP2, cuts
    return tensor.detach().to_local(), first * (tensor.numel() // rows)


def sums_of_parts(tensors: Iterable[torch.Tensor]) -> list[Sums]:
    """Return the sums of each tensor (`tensor_digests`). If some are dealt out, all ranks take
    part, and add up those of their parts."""
    found, dealt_out = [], []
    for tensor in tensors:
        dealt_out.append(isinstance(tensor, DTensor))
        part, first = own_part(tensor) if dealt_out[-1] else (tensor, 0)
        found.append(sums_of(part, first // max(tensor.shape[-1], 1) if part.dim() > 1 else first))
    sums = read_sums(found)
    if not any(dealt_out):
        return sums
    own = np.array([[each % MODULUS for each in pair] for pair in sums], dtype=np.uint64)
    own[np.logical_not(dealt_out)] *= rank() == 0
    added = torch.from_numpy(own.view(np.int64))
    torch.distributed.all_reduce(added)
    return [(first, second) for first, second in added.tolist()]


def gathered(tensors: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """Return the tensors whole, in the CPU's memory of rank 0, one after the other; the others take
    part, and get empty ones."""
    return {name: whole(tensor) for name, tensor in tensors.items()}


def whole(tensor: torch.Tensor) -> torch.Tensor:
    """Return a tensor as `gathered` does."""
    if not isinstance(tensor, DTensor):
        return tensor
    found = tensor.detach().full_tensor()
    if rank() == 0:
        return found.cpu()
    # Wait for it: NCCL counts from when a rank asks, and would give up what rank 0 comes to late.
    found.flatten()[:1].cpu()
    return found.new_empty(0)


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


def parts_of(whole: Mapping[str, Any], optimizer: Any) -> dict[str, Any]:
    """Return the state of an optimizer with this rank's part of each tensor."""
    numbers = itertools.chain(*(group["params"] for group in whole["param_groups"]))
    state = {
        number: {name: part_of(each, weight) for name, each in whole["state"][number].items()}
        for number, weight in zip(numbers, _weights(_without_wrapper(optimizer)), strict=True)
        if number in whole["state"]
    }
    return {**whole, "state": state}


def deal_out(optimizer: Any) -> None:
    """Of an optimizer whose state is whole, leave each rank its part."""
    inner = _without_wrapper(optimizer)
    for weight in _weights(inner):
        state = inner.state.get(weight, {})
        for name, value in state.items():
            state[name] = part_of(value, weight)


def forget_whole(optimizer: Any) -> None:
    """Remove the state of weights that have been dealt out since, which accelerate leaves: Adagrad
    has some from the first, and torch cannot save it."""
    inner = _without_wrapper(optimizer)
    for weight in inner.state.keys() - set(_weights(inner)):
        del inner.state[weight]


def _without_wrapper(optimizer: Any) -> Any:
    """Return torch's optimizer, which accelerate has wrapped."""
    return getattr(optimizer, "optimizer", optimizer)


def _weights(optimizer: Any) -> Iterator[Any]:
    return itertools.chain(*(group["params"] for group in optimizer.param_groups))
