"""A LoRA adapter beside its base in transformers, by PEFT."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from peft import LoraConfig, get_peft_model, get_peft_model_state_dict
from safetensors.torch import load_file

from mortal_steps.errors import EngineError
from mortal_steps.rollout.engines.model_files import ADAPTER_WEIGHTS, read_adapter_config
from mortal_steps.rollout.weight_sync.published import PublishedTensors


class AdaptedModel:
    """A model that computes with an adapter from now on, which PEFT puts into its own modules."""

    def __init__(self, model: Any, folder: Path) -> None:
        """Raise `ValueError` for an adapter that fits no module of the model."""
        self.config = read_adapter_config(folder)
        config = LoraConfig.from_pretrained(str(folder))
        config.base_model_name_or_path = None  # as the actor calls it; peft would warn
        # In the type that the adapter is published in, which is the model's.
        adapted = get_peft_model(model, config, autocast_adapter_dtype=False).eval()
        # The tensors that compute, by the names that they have in files.
        self._held: dict[str, torch.Tensor] = get_peft_model_state_dict(
            adapted, save_embedding_layers=False
        )

    def load(self, folder: Path) -> None:
        """Take over the adapter's tensors; raises `EngineError` unless they are the same ones."""
        held, given = self._held, load_file(folder / ADAPTER_WEIGHTS)
        other = sorted(
            name
            for name in held.keys() | given.keys()
            if name not in held or name not in given or held[name].shape != given[name].shape
        )
        if other:
            raise EngineError(
                f"the adapter in {folder} is not this model's: {other[0]} and "
                f"{len(other) - 1} other tensors are missing on one side or of another shape"
            )
        with torch.no_grad():
            for name, tensor in given.items():
                held[name].copy_(tensor)

    def compare(self, published: PublishedTensors) -> Mapping[str, bool]:
        """Of the tensors held and those published, whether they are the same to the bit."""
        missing = self._held.keys() ^ published.shapes.keys()
        return dict.fromkeys(missing, False) | published.compared(self._held.items())
