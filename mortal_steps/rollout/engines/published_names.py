"""A model's tensors by the names that they are published under, where transformers converts them.

    held        layers.0.mlp.experts.gate_up_proj (E, 2I, H)
    published   layers.0.block_sparse_moe.experts.0.w1.weight (I, H), .w3.weight, .experts.1.w1 ...

Private name used here: transformers `core_model_loading.revert_weight_conversion`.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator, Mapping
from typing import Any

import torch
from transformers.core_model_loading import revert_weight_conversion

LAYER = re.compile(r"(.*?\.\d+\.)?")


def by_published_names(
    model: Any, held: Mapping[str, torch.Tensor]
) -> Iterator[tuple[str, torch.Tensor]]:
    """Published name and tensor, one layer after the other: what is converted is a copy, and no two
    sets of weights are in memory."""
    for _, names in itertools.groupby(sorted(held, key=_layer_of), key=_layer_of):
        layer = {name: held[name].detach() for name in names}
        yield from revert_weight_conversion(model, layer).items()


def _layer_of(name: str) -> str:
    found = LAYER.match(name)
    return found[0] if found else ""
