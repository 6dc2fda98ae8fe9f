"""Writing the live model to disk without touching it."""

from __future__ import annotations

import copy
import json
from pathlib import Path

import torch
from peft import PeftModel, get_peft_model_state_dict
from peft.utils import CONFIG_NAME, SAFETENSORS_WEIGHTS_NAME
from safetensors.torch import save_file
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from mortal_steps.policy.base_model import Base

MODEL_CARD = "README.md"
ADAPTER_CARD = """\
---
base_model: {base}
{revision}library_name: peft
pipeline_tag: text-generation
---
A LoRA adapter of `{base}`, trained with {method} (TRL) by MORTAL. To load both:

    from peft import AutoPeftModelForCausalLM

    model = AutoPeftModelForCausalLM.from_pretrained("path/of/this/folder")

If the base lies elsewhere now, load it from there and give it to `PeftModel.from_pretrained`.
"""


def save_model(model: PreTrainedModel | PeftModel, folder: Path) -> None:
    """A plain `from_pretrained` folder (no tokenizer); an adapter is added to its base weights."""
    if isinstance(model, PeftModel):
        base = model.get_base_model()
        base.save_pretrained(folder, state_dict=merged_state_dict(model))
    else:
        model.save_pretrained(folder)


def save_adapter(model: PeftModel, folder: Path, base: Base) -> None:
    """The adapter alone, as engines take it beside its base: the tensors that `save_trained`
    writes, with a configuration that is the same on every machine."""
    folder.mkdir(parents=True, exist_ok=True)
    name = model.active_adapter
    # Base embeddings are never among what is trained; peft would look for theirs on the hub.
    tensors = get_peft_model_state_dict(model, adapter_name=name, save_embedding_layers=False)
    whole = {key: tensor.cpu().contiguous() for key, tensor in tensors.items()}
    save_file(whole, folder / SAFETENSORS_WEIGHTS_NAME, metadata={"format": "pt"})
    config = copy.copy(model.peft_config[name])
    config.inference_mode = True
    config.save_pretrained(str(folder))
    _settle_adapter_config(folder / CONFIG_NAME, base)


def save_trained(
    model: PreTrainedModel | PeftModel,
    folder: Path,
    base: Base,
    *,
    method: str,
    own_names: bool = False,
) -> None:
    """What training by a `method`, such as GRPO, changes: the model, or the adapter alone where
    there is one, which names `base` as what it belongs to.

    With `own_names` its tensors go by the names of its modules, not by those that transformers
    publishes models under: some of these two differ in shape, too.
    """
    if not isinstance(model, PeftModel):
        model.save_pretrained(folder, save_original_format=not own_names)
        return
    model.save_pretrained(folder)
    _settle_adapter_config(folder / CONFIG_NAME, base)
    revision = f"base_model_revision: {base.revision}\n" if base.revision else ""
    card = ADAPTER_CARD.format(base=base.name, revision=revision, method=method)
    (folder / MODEL_CARD).write_text(card, encoding="utf-8")


def save_tokenizer(tokenizer: PreTrainedTokenizerBase, folder: Path) -> None:
    """The tokenizer's files, without how it was loaded here, which transformers would note there:
    that follows HF_HUB_OFFLINE."""
    for how_it_was_loaded in ("is_local", "local_files_only"):
        tokenizer.init_kwargs.pop(how_it_was_loaded, None)
    tokenizer.save_pretrained(folder)


def _settle_adapter_config(path: Path, base: Base) -> None:
    """Make an adapter's configuration the same in every process and on every machine: peft writes
    module names out of a set, and the base by where this machine keeps it."""
    config = json.loads(path.read_text(encoding="utf-8"))
    for key in ("target_modules", "exclude_modules"):
        if isinstance(config[key], list):
            config[key].sort()
    config["base_model_name_or_path"] = base.name
    config["revision"] = base.revision
    path.write_text(json.dumps(config, indent=2, sort_keys=True), encoding="utf-8")


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
