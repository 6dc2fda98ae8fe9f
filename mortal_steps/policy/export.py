"""Writing the live model to disk without touching it."""

from __future__ import annotations

import json
from pathlib import Path

import torch
from peft import PeftModel
from peft.utils import CONFIG_NAME
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from mortal_steps.config import ModelConfig
from mortal_steps.hub import is_hub_model

MODEL_CARD = "README.md"


def save_model(model: PreTrainedModel | PeftModel, folder: Path) -> None:
    """A plain `from_pretrained` folder (no tokenizer); an adapter is added to its base weights."""
    if isinstance(model, PeftModel):
        base = model.get_base_model()
        base.save_pretrained(folder, state_dict=merged_state_dict(model))
    else:
        model.save_pretrained(folder)


def save_trained(model: PreTrainedModel | PeftModel, folder: Path, source: ModelConfig) -> None:
    """What training changes: the model, or the adapter alone where there is one."""
    model.save_pretrained(folder)
    if isinstance(model, PeftModel):
        _order_modules(folder / CONFIG_NAME)
        if is_hub_model(source):
            _name_base(folder, model.get_base_model().name_or_path, source)


def save_tokenizer(tokenizer: PreTrainedTokenizerBase, folder: Path) -> None:
    """The tokenizer's files, without how it was loaded here, which transformers would note there:
    that follows HF_HUB_OFFLINE."""
    for how_it_was_loaded in ("is_local", "local_files_only"):
        tokenizer.init_kwargs.pop(how_it_was_loaded, None)
    tokenizer.save_pretrained(folder)


def _order_modules(path: Path) -> None:
    """Sort the module names in an adapter's configuration: peft writes them out of a set, in an
    order that every process has for itself."""
    config = json.loads(path.read_text(encoding="utf-8"))
    for key in ("target_modules", "exclude_modules"):
        if isinstance(config[key], list):
            config[key].sort()
    path.write_text(json.dumps(config, indent=2, sort_keys=True), encoding="utf-8")


def _name_base(folder: Path, path: str, source: ModelConfig) -> None:
    """Let the adapter name its base by where it is from, not by where this machine keeps it."""
    for name in (CONFIG_NAME, MODEL_CARD):
        file = folder / name
        text = file.read_text(encoding="utf-8").replace(path, source.name_or_path)
        file.write_text(text, encoding="utf-8")
    config = json.loads((folder / CONFIG_NAME).read_text(encoding="utf-8"))
    config["revision"] = source.revision
    text = json.dumps(config, indent=2, sort_keys=True)
    (folder / CONFIG_NAME).write_text(text, encoding="utf-8")


@torch.no_grad()
def merged_state_dict(model: PeftModel) -> dict[str, torch.Tensor]:
    """The base model's weights with the active LoRA adapter added, under the base model's names.

    Adapted weights are new tensors and the live ones are only read: merging in place and taking it
    back would not restore their bits.

        layers.0.q_proj.base_layer.weight  +  B @ A * scaling  ->  layers.0.q_proj.weight
    """
    base, adapter = model.get_base_model(), model.active_adapter
    merged: dict[str, torch.Tensor] = {}
    for name, tensor in base.state_dict().items():
        layer, is_adapted, leaf = name.rpartition(".base_layer.")
        if is_adapted:
            if leaf == "weight":
                delta = base.get_submodule(layer).get_delta_weight(adapter)
                tensor = (tensor + delta.to(tensor.dtype)).cpu()
            merged[f"{layer}.{leaf}"] = tensor
        elif ".lora_" not in name:
            merged[name] = tensor
    return merged
