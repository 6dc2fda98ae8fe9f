"""Digests of what an actor holds: its weights and the state of its optimizer.

They cover the tensors themselves, under the names of the modules, so two states can be compared
whatever files they came from and whatever device they are on. On a GPU nothing but a few numbers of
each tensor is copied (`tensor_digests`): weights are digested in every step, and nobody forges
them.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import torch
from peft import PeftModel
from torch import nn
from torch.distributed.tensor import DTensor

from mortal_steps.policy.ranks.parts import sums_of_parts
from mortal_steps.rollout.weight_sync.tensor_digests import AddUp, Sums, digest_of

Content = tuple[int, torch.dtype, torch.Size, tuple[int, ...]]
"""Where the numbers of a tensor lie, and how they are read. Tied weights have one."""


class WeightSums:
    """The sums of a model's trained tensors as they are now, computed once for every digest of
    them: that of a step, that of its published version, and that of its checkpoint. `forget` comes
    before anything changes them."""

    def __init__(self) -> None:
        self.forget()

    def forget(self) -> None:
        self._known: list[Sums] = []
        self._places: dict[Content, int] = {}
        self._held: list[torch.Tensor] = []  # so that no other tensor comes to lie there

    def note(self, tensors: Iterable[torch.Tensor]) -> list[Sums]:
        """Return the sums of tensors that stay as they are until `forget`; they are computed."""
        self.forget()
        return self._added_up(tensors, noting=True)

    def find(self, tensors: Iterable[torch.Tensor]) -> list[Sums]:
        """Return the sums of tensors, among them some that were noted."""
        return self._added_up(tensors, noting=False)

    def _added_up(self, tensors: Iterable[torch.Tensor], *, noting: bool) -> list[Sums]:
        places: list[int] = []

        def unknown() -> Iterator[torch.Tensor]:
            count = len(self._known)
            for tensor in tensors:
                content = _content_of(tensor)
                place = self._places.get(content) if content else None
                if place is not None:
                    places.append(place)
                    continue
                places.append(count)
                if noting and content is not None:
                    self._places[content] = count
                    self._held.append(tensor)
                count += 1
                yield tensor

        sums = [*self._known, *sums_of_parts(unknown())]
        if noting:
            self._known = sums
        return [sums[place] for place in places]


def _content_of(tensor: torch.Tensor) -> Content | None:
    """None for a part of a tensor: all ranks add those up together, whatever each of them has."""
    if isinstance(tensor, DTensor) or not tensor.numel():
        return None
    return tensor.data_ptr(), tensor.dtype, tensor.shape, tensor.stride()


def weights_digest(model: nn.Module, add_up: AddUp = sums_of_parts) -> str:
    """Digest of the trained tensors: all of them, or those of the adapter if there is one."""
    return digest(trained_tensors(model), add_up)


def trained_tensors(model: nn.Module) -> dict[str, torch.Tensor]:
    """Return trained tensors and buffers by module name, without an adapter's base."""
    if not isinstance(model, PeftModel):
        return dict(model.state_dict())
    trained = {name for name, tensor in model.named_parameters() if tensor.requires_grad}
    trained |= {name for name, _ in model.named_buffers()}
    return {name: tensor for name, tensor in model.state_dict().items() if name in trained}


def digest(content: Any, add_up: AddUp = sums_of_parts) -> str:
    """Digest of nested mappings and sequences of tensors, numbers, texts and None."""
    texts: list[str] = []
    tensors: list[torch.Tensor] = []
    _describe(content, texts, tensors)
    forms = zip(tensors, add_up(tensors), strict=True)
    digests = [digest_of(tensor.dtype, tuple(tensor.shape), each) for tensor, each in forms]
    return hashlib.blake2b(";".join([*texts, *digests]).encode(), digest_size=16).hexdigest()


def _describe(content: Any, texts: list[str], tensors: list[torch.Tensor]) -> None:
    if isinstance(content, torch.Tensor):
        texts.append("tensor")
        tensors.append(content)
    elif isinstance(content, Mapping):
        texts.append(f"mapping {len(content)}")
        for key in sorted(content, key=str):
            texts.append(json.dumps(str(key)))
            _describe(content[key], texts, tensors)
    elif isinstance(content, Sequence) and not isinstance(content, str):
        texts.append(f"sequence {len(content)}")
        for item in content:
            _describe(item, texts, tensors)
    else:
        texts.append(repr(content))
