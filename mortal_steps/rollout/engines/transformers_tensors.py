"""Whether a model of transformers holds the tensors of a published version."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

import torch

from mortal_steps.rollout.engines.adapter_files import is_adapter
from mortal_steps.rollout.engines.base import Engine, other_tensors
from mortal_steps.rollout.engines.held_tensors import (
    differing,
    differing_in,
    digest_of_held,
    is_as_in_file,
    tensors_in,
)
from mortal_steps.rollout.engines.published_names import by_published_names
from mortal_steps.rollout.engines.tensor_shapes import tensor_shapes
from mortal_steps.rollout.engines.transformers_adapter import AdaptedModel
from mortal_steps.store.tensor_layout import Layout


class ComparesTensors(Engine):
    """What an engine needs for that: its model, the names of its parameters (tied ones are one),
    and the adapter that it computes with, if any."""

    _model: Any
    _names: set[str]
    _adapted: AdaptedModel | None

    def verify(self, folder: Path) -> None:
        """Compare the adapter's tensors, or the model's by the names that they have in files."""
        if is_adapter(folder):
            other = self._adapted.differing(folder) if self._adapted else ["all of it"]
        elif tensor_shapes(folder).keys() == self._own().keys():
            other = differing(self._own(), tensors_in(folder))
        else:
            other = differing_in(by_published_names(self._model, self._own()), folder)
        if other:
            raise other_tensors(str(folder), other)

    def verify_tensors(self, tensors: Mapping[str, torch.Tensor], origin: str) -> None:
        """The same of tensors in memory."""
        other = differing(self._own(), tensors.items())
        if other:
            raise other_tensors(origin, other)

    def compared(self, names: Collection[str]) -> Collection[str]:
        """Those that are parameters of the model, or become them when they are read."""
        own = self._own()
        if own.keys() >= set(names):
            return names
        return {name for name, _ in by_published_names(self._model, own)}.intersection(names)

    def holds_as_in_file(self, layout: Layout) -> bool:
        """Whether they are the model's, on a CPU."""
        return self._adapted is None and is_as_in_file(self._own(), layout)

    def digest_of_held(self, layout: Layout) -> str:
        """Of the parameters that the model computes with."""
        own = self._own()
        return digest_of_held(own, layout) if is_as_in_file(own, layout) else ""

    def _own(self) -> dict[str, torch.Tensor]:
        held = dict(self._model.named_parameters())
        return {name: held[name] for name in self._names if name in held}
