"""How much memory a model's keys and values take, by its config.json."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

WIDTH = ("hidden_size", "n_embd", "d_model")
LAYERS = ("num_hidden_layers", "n_layer", "n_layers", "num_layers")
HEADS = ("num_attention_heads", "n_head", "n_heads", "num_heads")
HEAD_WIDTH = ("head_dim", "global_head_dim")
"""Layers may differ, and say so in `per_layer_config`: the widest counts."""


RECURRENT = ("mamba_", "ssm_", "linear_", "conv_L_")
"""What names begin with that only models with recurrent layers have."""


def cache_bytes_per_token(settings: Mapping[str, Any]) -> int:
    """Bytes in float32, at most, of one token in all layers.

    Models call the same thing by several names; a model without attention heads (Mamba) counts as
    one with a head as wide as it is.
    """
    text = settings.get("text_config") or settings
    width = _first(text, WIDTH) or 0
    heads = _first(text, HEADS) or 1
    layers = [text, *(text.get("per_layer_config") or {}).values()]
    widths = [layer.get(name) or 0 for layer in layers for name in HEAD_WIDTH]
    head_width = max(widths) or width // heads
    kept = text.get("num_key_value_heads") or heads
    return int(2 * (_first(text, LAYERS) or 1) * kept * head_width * 4)


def is_recurrent(settings: Mapping[str, Any]) -> bool:
    """Whether some layers have a state in place of keys and values, as those of Jamba, Falcon-H1 or
    Qwen3-Next."""
    text = settings.get("text_config") or settings
    return any(name.startswith(RECURRENT) for name in text)


def _first(text: Mapping[str, Any], names: tuple[str, ...]) -> int | None:
    return next((text[name] for name in names if isinstance(text.get(name), int)), None)
