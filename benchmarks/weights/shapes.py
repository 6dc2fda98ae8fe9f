"""Models of real sizes with random weights."""

from pathlib import Path
from typing import Any

import torch
from transformers import AutoModelForCausalLM, Qwen2Config

from mortal_steps.config import NewModelConfig
from mortal_steps.policy.starting_model.new_model import build_tokenizer


def _shape(
    width: int, mlp: int, layers: int, *, heads: int, kv_heads: int = 2, tied: bool = True
) -> dict[str, Any]:
    return {
        "hidden_size": width,
        "intermediate_size": mlp,
        "num_hidden_layers": layers,
        "num_attention_heads": heads,
        "num_key_value_heads": kv_heads,
        "tie_word_embeddings": tied,
    }


SHAPES = {
    0.01: _shape(64, 128, 2, heads=2),
    0.09: _shape(512, 1408, 4, heads=8),
    0.5: _shape(896, 4864, 24, heads=14),
    1.5: _shape(1536, 8960, 28, heads=12),
    7.6: _shape(3584, 18944, 28, heads=28, kv_heads=4, tied=False),
}
"""By billions of parameters; the larger three are Qwen2.5's."""
VOCABULARY = 151_936


def build(
    size: float, folder: Path, *, dtype: str = "float32", device: str = "cpu", positions: int = 512
) -> tuple[Any, Any]:
    """Return a model and a tokenizer, written to `folder` as well."""
    tokenizer = build_tokenizer(NewModelConfig())
    config = Qwen2Config(
        vocab_size=VOCABULARY,
        max_position_embeddings=positions,
        bos_token_id=None,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
        **SHAPES[size],
    )
    torch.manual_seed(0)
    with torch.device(device):
        model = AutoModelForCausalLM.from_config(config, dtype=getattr(torch, dtype)).eval()
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return model, tokenizer
