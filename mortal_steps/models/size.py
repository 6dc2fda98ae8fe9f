"""The number of a model's parameters, from its safetensors files or its config.json.

The names in config.json are those of llama and most decoders since (Qwen, Mistral, Gemma, Phi).
"""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mortal_steps.config import ModelConfig, TrainingConfig
from mortal_steps.models.hub import find_hub_file, is_hub_model
from mortal_steps.models.local_folder import read_type, weight_files

BYTES = {"float32": 4, "bfloat16": 2, "float16": 2}
"""Of a parameter."""
WHOLE, INDEX = "model.safetensors", "model.safetensors.index.json"
"""All weights, or which file holds which of them."""
TRAINING_ARGS = "training_args.bin"
"""What transformers' trainers save beside weights."""
GATED = ("llama", "mistral", "qwen2", "qwen3", "gemma", "gemma2", "gemma3_text")
"""Values of `model_type` for decoders whose parameters follow from their sizes: their MLPs have
three matrices."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ModelSize:
    """What a model's memory follows from."""

    parameters: int
    counted: bool = True
    """Whether `parameters` is their number, rather than a guess at it."""
    dtype: str | None = None
    """Type that the weights were saved in, if config.json tells it."""

    def weights(self, model: ModelConfig) -> float:
        """Return the bytes of the weights, as they are loaded."""
        return self._bytes_of_one(model) * self.parameters

    def gradients(self, model: ModelConfig, training: TrainingConfig) -> float:
        """Return the bytes of the gradients; those of an adapter do not count."""
        return 0.0 if training.use_lora else self.weights(model)

    def training(self, model: ModelConfig, training: TrainingConfig) -> float:
        """Return the bytes of what is trained, whatever the batch: weights, gradients and Adam's
        moments, and the reference model. An adapter and other optimizers count as nothing."""
        weights = self.weights(model)
        if training.use_lora:
            return weights
        optimizer = str(training.trl.get("optim", "adamw"))
        adam = optimizer.startswith("adamw") and "bit" not in optimizer
        return weights * (2 + 2 * adam + (training.beta > 0))

    def _bytes_of_one(self, model: ModelConfig) -> float:
        if model.quantization:
            return 1.0 if model.quantization.get("load_in_8bit") else 0.5
        dtype = self.dtype if model.dtype == "auto" else model.dtype
        return BYTES.get(dtype or "float32", 4)


def find_size(model: ModelConfig) -> ModelSize | None:
    """Return the size of the model; None if its config.json is not here or has other names."""
    if model.new is not None:
        return ModelSize(parameters=model.new.num_parameters)
    if is_hub_model(model):
        path = find_hub_file(model, "config.json")
    else:
        path = Path(model.name_or_path) / "config.json"
    return read_size(path) if path is not None else None


def read_size(path: Path) -> ModelSize | None:
    """Count the parameters in the files beside a config.json; where these are not here yet, their
    number follows from the sizes in it. None for a file that uses other names."""
    try:
        settings = json.loads(path.read_text(encoding="utf-8"))
        text = settings.get("text_config", settings)
        tied = text.get("tie_word_embeddings", settings.get("tie_word_embeddings", True))
        guess = _parameters_by_shape(text, tied=bool(tied))
    except (OSError, ValueError, AttributeError, KeyError, TypeError, ArithmeticError):
        return None
    found = count_parameters(path.parent)
    return ModelSize(
        parameters=found or guess,
        counted=bool(found) or text.get("model_type") in GATED,
        dtype=read_type(path),
    )


def _parameters_by_shape(text: dict[str, Any], *, tied: bool) -> int:
    """Return the parameters of a decoder of this shape, but for biases."""
    hidden, heads = text["hidden_size"], text["num_attention_heads"]
    head = text.get("head_dim") or hidden // heads
    keys = text.get("num_key_value_heads") or heads
    experts = text.get("num_experts") or text.get("num_local_experts") or 0
    width = text.get("moe_intermediate_size") if experts else None
    attention = 2 * hidden * head * (heads + keys)
    mlp = 3 * hidden * (width or text["intermediate_size"]) * max(experts, 1) + experts * hidden
    layers = text["num_hidden_layers"] * (attention + mlp + 2 * hidden)
    found = (2 - tied) * text["vocab_size"] * hidden + layers + hidden
    if type(found) is not int or found <= 0:
        raise ValueError("a size is no positive integer")
    return found


def count_parameters(folder: Path) -> int:
    """Count the parameters in the safetensors files of a folder; 0 if there are none, or not yet
    all."""
    from safetensors import safe_open  # Imported where used: takes a moment.

    found, files = 0, {path.name: path for path in weight_files(folder)}
    files.pop(TRAINING_ARGS, None)
    if WHOLE in files:  # as transformers chooses
        files = {WHOLE: files[WHOLE]}
    elif (folder / INDEX).exists():
        index = json.loads((folder / INDEX).read_text(encoding="utf-8"))
        listed = set(index["weight_map"].values())
        if not listed <= files.keys():
            return 0
        files = {name: files[name] for name in listed}
    for path in files.values():
        if path.suffix != ".safetensors":
            return 0
        with safe_open(path, framework="numpy") as file:
            names = file.keys()
            found += sum(math.prod(file.get_slice(name).get_shape()) for name in names)
    return found
