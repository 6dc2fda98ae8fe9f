"""The sizes of a model, from its config.json and the headers of its safetensors files.

The names in config.json are those of llama and most decoders since (Qwen, Mistral, Gemma, Phi).
"""

import json
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from mortal_steps.config import ModelConfig
from mortal_steps.config.training import USUAL_LAYERS, LoraConfig
from mortal_steps.models.hub import find_hub_file, is_hub_model
from mortal_steps.models.local_folder import read_type, weight_files

WHOLE, INDEX = "model.safetensors", "model.safetensors.index.json"
"""All weights, or which file holds which of them."""
TRAINING_ARGS = "training_args.bin"
"""What transformers' trainers save beside weights."""
GATED = ("llama", "mistral", "qwen2", "qwen3", "gemma", "gemma2", "gemma3_text")
"""Values of `model_type` for decoders whose parameters follow from their sizes: their MLPs have
three matrices."""
WIDTH = ("hidden_size", "n_embd", "d_model")
LAYERS = ("num_hidden_layers", "n_layer", "n_layers", "num_layers")
HEADS = ("num_attention_heads", "n_head", "n_heads", "num_heads")
HEAD_WIDTH = ("head_dim", "global_head_dim")
"""Layers may differ, and say so in `per_layer_config`: the widest counts."""
RECURRENT = ("mamba_", "ssm_", "linear_", "conv_L_")
"""What names begin with that only models with recurrent layers have."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ModelShape:
    """What a model's memory follows from."""

    hidden: int
    """Width of the residual stream."""
    layers: int
    attention: int
    """Width of all query heads."""
    keys: int
    """Width of all key heads; the values are as wide."""
    mlp: int
    """Width of the MLP that a token passes: of all of its experts, in a mixture."""
    vocabulary: int
    tied: bool
    """Whether the output embeddings are the input embeddings."""
    parameters: int
    counted: bool = True
    """Whether `parameters` is their number, rather than a guess at it."""
    dtype: str | None = None
    """Type that the weights were saved in, if config.json tells it."""

    @property
    def embedding(self) -> int:
        return self.vocabulary * self.hidden

    @property
    def linears(self) -> dict[str, tuple[int, int]]:
        """The linear layers of a decoder layer by name: how many features go in and come out."""
        return {
            "self_attn.q_proj": (self.hidden, self.attention),
            "self_attn.k_proj": (self.hidden, self.keys),
            "self_attn.v_proj": (self.hidden, self.keys),
            "self_attn.o_proj": (self.attention, self.hidden),
            "mlp.gate_proj": (self.hidden, self.mlp),
            "mlp.up_proj": (self.hidden, self.mlp),
            "mlp.down_proj": (self.mlp, self.hidden),
        }

    def adapted(self, lora: LoraConfig) -> dict[str, tuple[int, int]]:
        """Those of `linears` that get an adapter."""
        targets = lora.target_modules
        if targets == "all-linear":
            return self.linears
        if targets == USUAL_LAYERS:
            targets = ("q_proj", "v_proj")  # PEFT's for llama, Qwen and most of their kind
        if isinstance(targets, str):
            fits = re.compile(targets).fullmatch
            return {k: v for k, v in self.linears.items() if fits(f"model.layers.0.{k}")}
        ends = tuple(f".{target}" for target in targets)
        return {k: v for k, v in self.linears.items() if f".{k}".endswith(ends)}


def find_shape(model: ModelConfig) -> ModelShape | None:
    """Return the model's sizes; None without its config.json, or with other names."""
    if model.new is not None:
        new = model.new
        wide = max(1, new.hidden_size // new.head_dim) * new.head_dim
        return ModelShape(
            hidden=new.hidden_size,
            layers=new.num_layers,
            attention=wide,
            keys=wide,
            mlp=new.intermediate_size,
            vocabulary=new.num_tokens,
            tied=True,
            parameters=new.num_parameters,
        )
    if is_hub_model(model):
        path = find_hub_file(model, "config.json")
    else:
        path = Path(model.name_or_path) / "config.json"
    return read_shape(path) if path is not None else None


def read_shape(path: Path) -> ModelShape | None:
    """Return the sizes in a config.json, and the parameters of the weights beside it; where these
    are not here yet, their number follows from the sizes. None for a file that uses other names."""
    try:
        settings = json.loads(path.read_text(encoding="utf-8"))
        text = settings.get("text_config", settings)
        tied = text.get("tie_word_embeddings", settings.get("tie_word_embeddings", True))
        return _shape(text, path, tied=bool(tied))
    except (OSError, ValueError, AttributeError, KeyError, TypeError, ArithmeticError):
        return None


def _shape(text: dict[str, Any], path: Path, *, tied: bool) -> ModelShape:
    """Return the sizes in a config.json; raise `ValueError` for one that is no positive integer."""
    hidden, heads = text["hidden_size"], text["num_attention_heads"]
    head = text.get("head_dim") or hidden // heads
    experts = text.get("num_experts") or text.get("num_local_experts") or 0
    width = text.get("moe_intermediate_size") if experts else None
    width = width or text["intermediate_size"]
    shape = ModelShape(
        hidden=hidden,
        layers=text["num_hidden_layers"],
        attention=heads * head,
        keys=(text.get("num_key_value_heads") or heads) * head,
        mlp=width * (text.get("num_experts_per_tok", 1) if experts else 1),
        vocabulary=text["vocab_size"],
        tied=tied,
        parameters=0,
        dtype=read_type(path),
    )
    sizes = (shape.hidden, shape.layers, shape.attention, shape.keys, shape.mlp, shape.vocabulary)
    if not all(type(size) is int and size > 0 for size in sizes):
        raise ValueError(f"{path}: a size is no positive integer")
    if found := count_parameters(path.parent):
        return replace(shape, parameters=found)
    known = text.get("model_type") in GATED
    return replace(shape, parameters=_by_shape(shape, width, experts), counted=known)


def _by_shape(shape: ModelShape, width: int, experts: int) -> int:
    """Parameters of a decoder of this shape, but for biases."""
    attention = 2 * shape.hidden * (shape.attention + shape.keys)
    mlp = 3 * shape.hidden * width * max(experts, 1) + experts * shape.hidden
    layer = attention + mlp + 2 * shape.hidden
    return (2 - shape.tied) * shape.embedding + shape.layers * layer + shape.hidden


def count_parameters(folder: Path) -> int:
    """Parameters in the safetensors files of a folder; 0 if there are none, or not yet all, or
    if one is damaged: what loads it says so."""
    from safetensors import SafetensorError, safe_open  # Imported where used: takes a moment.

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
        try:
            with safe_open(path, framework="numpy") as file:
                names = file.keys()
                found += sum(math.prod(file.get_slice(name).get_shape()) for name in names)
        except SafetensorError:
            return 0
    return found


def cache_bytes_per_token(settings: Mapping[str, Any]) -> int:
    """Bytes in float32, at most, of one token in all layers. Models' names differ; one without
    attention heads (Mamba) counts as one with a head as wide as it is."""
    text = settings.get("text_config") or settings
    width = _first(text, WIDTH) or 0
    heads = _first(text, HEADS) or 1
    layers = [text, *(text.get("per_layer_config") or {}).values()]
    widths = [layer.get(name) or 0 for layer in layers for name in HEAD_WIDTH]
    head_width = max(widths) or width // heads
    kept = text.get("num_key_value_heads") or heads
    return int(2 * (_first(text, LAYERS) or 1) * kept * head_width * 4)


def is_recurrent(settings: Mapping[str, Any]) -> bool:
    """Return whether some layers keep a state, as in Jamba or Qwen3-Next."""
    text = settings.get("text_config") or settings
    return any(name.startswith(RECURRENT) for name in text)


def _first(text: Mapping[str, Any], names: tuple[str, ...]) -> int | None:
    return next((text[name] for name in names if isinstance(text.get(name), int)), None)
