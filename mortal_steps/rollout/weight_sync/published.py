"""The tensors of a published version, as an engine compares its own with them.

The probe's file has the digest of each, computed where the actor had it; an engine computes those
of what it holds, where it has that. A tensor that an engine holds in another type or form has no
such digest: the probe's log-probabilities alone are its proof.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from mortal_steps.errors import WeightsMismatchError
from mortal_steps.rollout.engines.model_files import TensorShapes, tensor_shapes

if TYPE_CHECKING:  # an engine sets the environment that torch reads when it is imported
    import torch


@dataclass(kw_only=True)
class PublishedTensors:
    """Of one version."""

    folder: Path
    digests: Mapping[str, str] = field(default_factory=dict)
    """Digests by the name of the tensor; `tensor_digests` computes them."""
    is_whole: bool = False
    """Whether the engine has compared all tensors that it computes with, though not by name."""

    @functools.cached_property
    def shapes(self) -> TensorShapes:
        """Shape of each tensor by its name; raises `EngineError`."""
        return tensor_shapes(self.folder)

    def compared(self, held: Iterable[tuple[str, torch.Tensor]]) -> dict[str, bool]:
        """Of each held tensor by published name, whether it is the same to the bit."""
        # Imported where tensors are: a worker's engine has to be the first to import torch.
        from mortal_steps.rollout.weight_sync.tensor_digests import tensor_digests

        return self.matching(
            tensor_digests((name, tensor) for name, tensor in held if name in self.digests)
        )

    def matching(self, held: Mapping[str, str]) -> dict[str, bool]:
        """Return the same of tensors with these digests."""
        return {
            name: self.digests[name] == digest
            for name, digest in held.items()
            if _type_of(self.digests[name]) == _type_of(digest)
        }


def check_loaded(found: Mapping[str, bool], origin: str) -> None:
    """Raise `WeightsMismatchError` unless all that an engine compared is what it should be."""
    other = sorted(name for name, same in found.items() if not same)
    if not other:
        return
    more = f" and {len(other) - 1} more" if len(other) > 1 else ""
    raise WeightsMismatchError(
        f"the engine does not hold the tensors of {origin} (other or missing: {other[0]}{more}). "
        'Try another rollout.weight_sync or, for an adapter, training.lora.publish = "merged"'
    )


def _type_of(digest: str) -> str:
    return digest.partition(":")[0]
