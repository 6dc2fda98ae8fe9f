"""Models of real sizes with random weights."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from transformers import AutoModelForCausalLM, Qwen2Config

from mortal_steps.config import NewModelConfig

try:
    from mortal_steps.policy.starting_model.new_model import build_tokenizer
except ModuleNotFoundError:  # where the code of older commits has it
    from mortal_steps.policy.new_model import (  # type: ignore[import-not-found,no-redef]
        build_tokenizer,
    )

SHAPES = {
    0.09: {"hidden_size": 512, "intermediate_size": 1408, "num_hidden_layers": 4},
    0.5: {"hidden_size": 896, "intermediate_size": 4864, "num_hidden_layers": 24},
    1.5: {"hidden_size": 1536, "intermediate_size": 8960, "num_hidden_layers": 28},
}
"""By billions of parameters; the larger two are Qwen2.5's."""
VOCABULARY = 151_936


def build(size: float, folder: Path) -> tuple[Any, Any]:
    """A model in float32 and a tokenizer, written to `folder` as well."""
    shape = SHAPES[size]
    tokenizer = build_tokenizer(NewModelConfig())
    config = Qwen2Config(
        vocab_size=VOCABULARY,
        num_attention_heads=shape["hidden_size"] // 64 if size < 1 else 12,
        num_key_value_heads=2,
        tie_word_embeddings=True,
        max_position_embeddings=512,
        bos_token_id=None,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
        **shape,
    )
    torch.manual_seed(0)
    model = AutoModelForCausalLM.from_config(config).eval()
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return model, tokenizer
