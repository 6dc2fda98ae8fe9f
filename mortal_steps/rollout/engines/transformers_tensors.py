"""Whether a model of transformers holds the tensors of a published version."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from mortal_steps.rollout.engines.base import Engine
from mortal_steps.rollout.engines.model_files import is_adapter
from mortal_steps.rollout.engines.published_names import by_published_names
from mortal_steps.rollout.engines.transformers_adapter import AdaptedModel
from mortal_steps.rollout.weight_sync.published import PublishedTensors


class ComparesTensors(Engine):
    """What an engine needs for that: its model, the names of its parameters (tied ones are one),
    and the adapter that it computes with, if any."""

    _model: Any
    _names: set[str]
    _adapted: AdaptedModel | None

    def compare(self, published: PublishedTensors) -> Mapping[str, bool]:
        """Of the adapter's tensors, or of the model's by the names that they have in files."""
        if is_adapter(published.folder):
            return self._adapted.compare(published) if self._adapted else {"all of it": False}
        own = self._own()
        if own.keys() >= published.shapes.keys():
            return published.compared(own.items())
        return published.compared(by_published_names(self._model, own))

    def _own(self) -> dict[str, torch.Tensor]:
        held = dict(self._model.named_parameters())
        return {name: held[name] for name in self._names if name in held}
