"""A model with its LoRA adapter added to its weights, computed without touching either.

    layers.0.q_proj.base_layer.weight   +  B @ A * scaling  ->  layers.0.q_proj.weight
    lm_head.modules_to_save.default.weight                  ->  lm_head.weight

PEFT merges a copy of one layer at a time: merging in place and taking it back would not restore the
bits of the live one.
"""

import copy
from collections.abc import Iterator, Mapping
from typing import Any

import torch
from peft import PeftModel
from peft.tuners.lora.layer import Linear
from peft.tuners.tuners_utils import BaseTunerLayer
from peft.utils.integrations import dequantize_module_weight
from peft.utils.other import AuxiliaryTrainingWrapper
from torch import nn

QUANTIZED = ("Params4bit",)
"""What the weights of quantized layers are, in bitsandbytes."""


def merged_state_dict(model: PeftModel) -> dict[str, torch.Tensor]:
    """Return the base model's weights with the active adapter added, under the base model's names:
    adapted and quantized ones are new tensors, the others live."""
    base, adapter = model.get_base_model(), model.active_adapter
    changed = dict(_changed(base))
    merged: dict[str, torch.Tensor] = {}
    for name, tensor in base.state_dict().items():
        path = next((path for path in _paths_above(name) if path in changed), None)
        if path is None:
            merged[name] = tensor
        elif changed[path] is not None:
            with torch.no_grad():
                whole = _whole(copy.deepcopy(changed[path]), adapter)
            merged |= {f"{path}.{leaf}": tensor.cpu() for leaf, tensor in whole.items()}
            changed[path] = None  # with all of its tensors
    return merged


def _changed(module: nn.Module, path: str = "") -> Iterator[tuple[str, nn.Module | None]]:
    """Return the layers that do not have their published tensors, by their paths."""
    for name, layer in module.named_children():
        below = f"{path}.{name}" if path else name
        if isinstance(layer, BaseTunerLayer | AuxiliaryTrainingWrapper) or is_quantized(layer):
            yield below, layer
        else:
            yield from _changed(layer, below)


def _paths_above(name: str) -> Iterator[str]:
    while name:
        name = name.rpartition(".")[0]
        yield name


def _whole(layer: Any, adapter: str) -> Mapping[str, torch.Tensor]:
    """Return the tensors of a layer of our own, with the adapter merged in."""
    if isinstance(layer, BaseTunerLayer) and is_quantized(layer.get_base_layer()):
        layer.base_layer = _dequantized(layer.get_base_layer())
        Linear.merge(layer, adapter_names=[adapter])  # its own would quantize the result
    elif hasattr(layer, "unload_and_optionally_merge_module"):
        layer = layer.unload_and_optionally_merge_module(True, False, [adapter])
    elif isinstance(layer, BaseTunerLayer):
        layer.merge(adapter_names=[adapter])
    if isinstance(layer, BaseTunerLayer):
        layer = layer.get_base_layer()
    if is_quantized(layer):
        layer = _dequantized(layer)
    whole: dict[str, torch.Tensor] = layer.state_dict()
    return whole


def is_quantized(layer: nn.Module) -> bool:
    """Whether a layer's own weights are in 4 bits."""
    own = dict(layer.named_parameters(recurse=False))
    return type(own.get("weight")).__name__ in QUANTIZED


def _dequantized(layer: Any) -> nn.Linear:
    plain = nn.Linear(layer.in_features, layer.out_features, bias=False, device="meta")
    plain.weight = nn.Parameter(dequantize_module_weight(layer), requires_grad=False)
    plain.bias = layer.bias
    return plain
