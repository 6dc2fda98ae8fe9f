"""Tiny Qwen3-shaped models that both transformers and vLLM load, and versions published from them.

Their weights are spread widely, so that the distributions over tokens are uneven; their generation
settings ask for another distribution, as real models' do, and no engine may heed them.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM, MixtralConfig, PreTrainedModel, Qwen3Config

from mortal_steps.config import NewModelConfig
from mortal_steps.policy.starting_model.new_model import build_tokenizer
from mortal_steps.rollout.weight_sync.tensor_digests import tensor_digests
from mortal_steps.store import RunStore
from mortal_steps.types import PolicyVersion, WeightsRef
from tests.support.rollout.cases import PROBE_IDS

CHAT_TEMPLATE = (
    "{% for m in messages %}{{ m['role'] }}: {{ m['content'] }}\n{% endfor %}"
    "{% if add_generation_prompt %}assistant{{ suffix }}: {% endif %}"
)
GENERATION_SETTINGS = {"repetition_penalty": 1.5, "top_k": 2, "temperature": 0.3, "do_sample": True}


def build_tiny_model(
    folder: Path,
    *,
    seed: int,
    tied: bool = True,
    hidden_size: int = 64,
    dtype: torch.dtype = torch.float32,
) -> Path:
    """Write a whole `from_pretrained` folder and return it."""
    shape = NewModelConfig()
    tokenizer = build_tokenizer(shape)
    tokenizer.chat_template = CHAT_TEMPLATE
    tokenizer.save_pretrained(folder)
    config = Qwen3Config(
        vocab_size=len(tokenizer),
        hidden_size=hidden_size,
        intermediate_size=shape.intermediate_size,
        num_hidden_layers=shape.num_layers,
        num_attention_heads=2,
        num_key_value_heads=2,
        head_dim=shape.head_dim,
        max_position_embeddings=shape.max_position_embeddings,
        tie_word_embeddings=tied,
        initializer_range=0.15,
        use_sliding_window=False,
        bos_token_id=None,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = AutoModelForCausalLM.from_config(config, dtype=dtype)
    model.save_pretrained(folder)
    settings = {"eos_token_id": 1, "pad_token_id": 0, **GENERATION_SETTINGS}
    (folder / "generation_config.json").write_text(json.dumps(settings))
    return folder


def build_tiny_mixture(folder: Path, *, seed: int) -> Path:
    """The same of a mixture of experts, of a size that vLLM packs for its kernel on a CPU."""
    tokenizer = build_tokenizer(NewModelConfig())
    tokenizer.save_pretrained(folder)
    config = MixtralConfig(
        vocab_size=len(tokenizer),
        hidden_size=64,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=2,
        num_key_value_heads=2,
        num_local_experts=4,
        num_experts_per_tok=2,
        max_position_embeddings=512,
        initializer_range=0.15,
        bos_token_id=None,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        AutoModelForCausalLM.from_config(config).save_pretrained(folder)
    return folder


def with_tensors_to_spare(folder: Path) -> Path:
    """The model as others save theirs: with a buffer that nobody reads, in two files with an index,
    and an adapter beside them."""
    path = folder / "model.safetensors"
    tensors = load_file(path)
    tensors["model.layers.0.self_attn.rotary_emb.inv_freq"] = torch.ones(16)
    names = sorted(tensors)
    files = {"model-00001-of-00002.safetensors": names[::2]}
    files["model-00002-of-00002.safetensors"] = names[1::2]
    for file, held in files.items():
        save_file({name: tensors[name] for name in held}, folder / file, {"format": "pt"})
    places = {name: file for file, held in files.items() for name in held}
    index = json.dumps({"metadata": {}, "weight_map": places})
    (folder / "model.safetensors.index.json").write_text(index)
    save_file({"lora_A.weight": torch.ones(1)}, folder / "extra.safetensors", {"format": "pt"})
    path.unlink()
    return folder


def read_model(folder: Path) -> PreTrainedModel:
    """Return the model as transformers reads it."""
    return AutoModelForCausalLM.from_pretrained(folder).eval()


def logprobs_of(model: PreTrainedModel, token_ids: list[int]) -> list[float]:
    """Logprobs of tokens 1.. given all before, at temperature 1."""
    ids = torch.tensor([token_ids])
    with torch.inference_mode():
        logprobs = model(ids).logits[0, :-1].double().log_softmax(dim=-1)
    return logprobs.gather(1, ids[0, 1:, None]).squeeze(1).tolist()


def publish(
    store: RunStore, version: int, model_folder: Path, probe_folder: Path | None = None
) -> WeightsRef:
    """Commit `weights/v<version>`; its probe is scored by the model in `probe_folder`, if given."""
    path = f"weights/v{version}"
    with store.committing_folder(path) as folder:
        for name in ("config.json", "generation_config.json", "model.safetensors"):
            shutil.copy(model_folder / name, folder / name)
        logprobs = logprobs_of(read_model(probe_folder or model_folder), PROBE_IDS)
        tensors = tensor_digests(load_file(model_folder / "model.safetensors").items())
        probe = {"token_ids": PROBE_IDS, "logprobs": logprobs, "tensors": tensors}
        (folder / "probe.json").write_text(json.dumps(probe))
    return WeightsRef(version=PolicyVersion(version), path=path, sha256=store.folder_digest(path))
