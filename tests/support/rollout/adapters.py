"""LoRA adapters of a tiny model, published as an actor publishes them."""

from __future__ import annotations

import json
from pathlib import Path

import torch
from peft import LoraConfig, PeftModel, get_peft_model
from safetensors.torch import load_file, save_file
from transformers import PreTrainedModel

from mortal_steps.policy.algorithms.base import AdapterBase
from mortal_steps.policy.model_files.writing import adapter_tensors, save_adapter
from mortal_steps.rollout.engines.model_files import ADAPTER_WEIGHTS
from mortal_steps.rollout.weight_sync.tensor_digests import tensor_digests
from mortal_steps.store import RunStore
from mortal_steps.types import PolicyVersion, WeightsRef
from tests.support.rollout.cases import PROBE_IDS, RANK
from tests.support.rollout.tiny_model import logprobs_of, read_model

NEW = 0.0
"""Spread of B in an adapter that nobody has trained: it changes nothing."""


def make_adapter(base: Path, seed: int, *, spread: float = 0.2) -> PeftModel:
    """Return the model with an adapter of every linear layer, whose B has this spread."""
    config = LoraConfig(
        task_type="CAUSAL_LM",
        r=RANK,
        lora_alpha=12,
        lora_dropout=0.3,
        target_modules="all-linear",
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = get_peft_model(read_model(base), config).eval()
        for name, parameter in model.named_parameters():
            if "lora_B" in name:
                torch.nn.init.normal_(parameter, std=spread)
    return model


def publish_adapter(store: RunStore, version: int, model: PeftModel) -> WeightsRef:
    """Commit `weights/v<version>`, with the probe's logprobs by the model that is not merged."""
    path = f"weights/v{version}"
    with store.committing_folder(path) as folder:
        save_adapter(model, folder, AdapterBase(name="base"))
        tensors = tensor_digests(adapter_tensors(model).items())
        scored = {"token_ids": PROBE_IDS, "logprobs": logprobs_of(model, PROBE_IDS)}
        (folder / "probe.json").write_text(json.dumps({**scored, "tensors": tensors}))
    return WeightsRef(version=PolicyVersion(version), path=path, sha256=store.folder_digest(path))


def without_one_tensor(adapter: Path, folder: Path, *, zeroed: bool) -> Path:
    """Return a copy whose last tensor is left out, or holds zeros."""
    folder.mkdir()
    for name in ("adapter_config.json", "probe.json", "manifest.json"):
        (folder / name).write_bytes((adapter / name).read_bytes())
    tensors = load_file(adapter / ADAPTER_WEIGHTS)
    last = max(tensors)
    if zeroed:
        tensors[last] = torch.zeros_like(tensors[last])
    else:
        del tensors[last]
    save_file(tensors, folder / ADAPTER_WEIGHTS)
    return folder


@torch.no_grad()
def nudge(model: PreTrainedModel) -> PreTrainedModel:
    """The same model with its trained weights a little larger: its log-probabilities differ by less
    than the canary tells."""
    for name, parameter in model.named_parameters():
        if "lora_" in name or not isinstance(model, PeftModel):
            parameter.mul_(1 + 1e-5)
    return model
