"""The tensors of a published version, as an engine compares its own with them.

The probe's file has the digest of each, computed where the actor had it. An engine computes those
of what it holds, where it has that; the tensors themselves are read again only to tell what one
would be in another type, or where no digest was published.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Iterator, Mapping, Set
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from mortal_steps.errors import WeightsMismatchError
from mortal_steps.rollout.engines.tensor_shapes import TensorShapes, tensor_shapes

if TYPE_CHECKING:  # an engine sets the environment that torch reads when it is imported
    import torch


@dataclass(kw_only=True)
class PublishedTensors:
    """Of one version."""

    folder: Path
    digests: Mapping[str, str] = field(default_factory=dict)
    """By name; `tensor_digests` computes them."""
    reread: set[str] = field(default_factory=set)
    """Names of those that an engine compared with what was read here again, since their digest did
    not tell: what was damaged here was compared with itself."""

    is_whole: bool = False
    """An engine sets it where it has compared all that it computes with, though not by name."""

    @functools.cached_property
    def shapes(self) -> TensorShapes:
        """Shape of each tensor by its name; raises `EngineError`."""
        return tensor_shapes(self.folder)

    def compared(self, held: Iterable[tuple[str, torch.Tensor]]) -> dict[str, bool]:
        """Of each tensor held by the name of a published one, whether it is that one, to the
        bit."""
        # Imported where tensors are: a worker's engine has to be the first to import torch.
        from mortal_steps.rollout.weight_sync.tensor_digests import tensor_digests

        own = ((name, tensor) for name, tensor in held if name in self.shapes)
        return self.matching(tensor_digests(own))

    def matching(self, held: Mapping[str, str]) -> dict[str, bool]:
        """The same of tensors with these digests."""
        from mortal_steps.rollout.weight_sync.tensor_digests import dtype_of, tensor_digests

        same = {name: self.digests.get(name) == digest for name, digest in held.items()}
        others = {
            name: dtype_of(held[name])
            for name in held
            if self.digests.get(name, "").partition(":")[0] != held[name].partition(":")[0]
        }
        self.reread |= others.keys()
        cast = ((name, tensor.to(others[name])) for name, tensor in self._read(others))
        return same | {name: held[name] == digest for name, digest in tensor_digests(cast).items()}

    def by_digest(self, found: Mapping[str, bool]) -> Set[str]:
        """Of what was compared, the names of the tensors whose published digest was met."""
        return found.keys() - self.reread

    def _read(self, names: Mapping[str, torch.dtype]) -> Iterator[tuple[str, torch.Tensor]]:
        from mortal_steps.rollout.engines.held_tensors import tensors_in

        if not names:
            return
        for name, tensor in tensors_in(self.folder):
            if name in names:
                yield name, tensor


def check_held(found: Mapping[str, bool], origin: str) -> None:
    """Raise `WeightsMismatchError` unless all that an engine compared is what it should be."""
    other = sorted(name for name, same in found.items() if not same)
    if not other:
        return
    more = f" and {len(other) - 1} more" if len(other) > 1 else ""
    raise WeightsMismatchError(
        f"the engine does not hold the tensors of {origin} (other or missing: {other[0]}{more}). "
        'Try another rollout.weight_sync or, for an adapter, training.lora.publish = "merged"'
    )
