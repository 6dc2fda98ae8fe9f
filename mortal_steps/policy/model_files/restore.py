"""Reading a saved state back into a trainer, tensor by tensor and type by type.

transformers' own way leaves at the base model whatever the file names otherwise than the modules
do, which it does itself while saving (the experts of most mixtures of experts, gpt_neox's head),
rounds an optimizer's float32 state to the type of bfloat16 weights, and makes the adapter of a
quantized model, which TRL trains in bfloat16, one of float32.
"""

import itertools
from pathlib import Path
from typing import Any

import torch
from peft import PeftModel, get_peft_model_state_dict, set_peft_model_state_dict
from peft.utils import SAFETENSORS_WEIGHTS_NAME
from safetensors.torch import load_file
from transformers import PreTrainedModel

from mortal_steps.errors import CheckpointMismatchError
from mortal_steps.policy import private
from mortal_steps.policy.model_files.writing import adapter_state
from mortal_steps.policy.ranks.parts import is_dealt_out, local_of, put
from mortal_steps.policy.ranks.world import rank


def load_model(model: PreTrainedModel, folder: Path, name: str = "model") -> None:
    """Load the weights of this `name` in `folder` under the modules' own names. Raises
    `CheckpointMismatchError` unless every tensor has its own."""
    own, found = model.state_dict(), set[str]()
    for file in sorted(folder.glob(f"{name}*.safetensors")):
        tensors = load_file(file)
        unknown = sorted(tensors.keys() - own.keys())
        if unknown:
            raise CheckpointMismatchError(f"{folder} holds {_some(unknown)}, the model does not")
        if is_dealt_out(own):
            put(tensors, own)
        else:
            model.load_state_dict(tensors, strict=False)
        found |= tensors.keys()
    # Tied tensors are one, and saved once.
    places = {name: local_of(tensor).data_ptr() for name, tensor in own.items()}
    addresses = {places[name] for name in found}
    ignored = private.keys_not_saved(model)
    missing = [
        name
        for name, tensor in own.items()
        if name not in found
        and name not in ignored
        and local_of(tensor).data_ptr() not in addresses
    ]
    if missing:
        raise CheckpointMismatchError(f"{folder} does not hold {_some(missing)} of the model")


def load_adapter(model: PeftModel, folder: Path) -> None:
    """Give the adapter the tensors in `folder`, in the types that it has. Raises
    `CheckpointMismatchError` unless it then is the one in `folder`."""
    saved = load_file(folder / SAFETENSORS_WEIGHTS_NAME)
    own, adapter = model.state_dict(), f".{model.active_adapter}"
    if is_dealt_out(own):
        whole = f".modules_to_save{adapter}"  # of a layer that is trained besides
        parts = [name for name in own if ".lora_" in name or whole in name]
        names = {name.replace(whole, "").replace(adapter, "", 1): name for name in parts}
        put({names[name]: tensor for name, tensor in saved.items()}, own)
    else:
        set_peft_model_state_dict(model, saved.copy())
    restored = get_peft_model_state_dict(model, state_dict=adapter_state(model))
    if rank():
        return  # rank 0 has it whole
    other = [
        name
        for name in sorted(saved.keys() | restored.keys())
        if name not in saved
        or name not in restored
        or saved[name].dtype != restored[name].dtype
        or not torch.equal(saved[name], restored[name].cpu())
    ]
    if other:
        raise CheckpointMismatchError(
            f"{folder} restores to another adapter than it holds: {_some(other)}"
        )


def restore_types(optimizer: Any, file: Path) -> None:
    """Give an optimizer restored from `file` its tensors' types there: torch casts state to the
    weights' type, which rounds Adafactor's float32."""
    optimizer = getattr(optimizer, "optimizer", optimizer)  # without what accelerate wraps it in
    weights = list(itertools.chain(*(group["params"] for group in optimizer.param_groups)))
    if all(weight.dtype == torch.float32 for weight in weights):
        return
    saved = torch.load(file, map_location="cpu", weights_only=True)
    numbers = itertools.chain(*(group["params"] for group in saved["param_groups"]))
    for number, weight in zip(numbers, weights, strict=True):
        for name, value in saved["state"].get(number, {}).items():
            there = optimizer.state[weight][name]
            if isinstance(value, torch.Tensor) and there.dtype != value.dtype:
                optimizer.state[weight][name] = value.to(there.device)


def _some(names: list[Any]) -> str:
    shown = ", ".join(map(str, names[:3]))
    return shown if len(names) <= 3 else f"{shown} and {len(names) - 3} more"
