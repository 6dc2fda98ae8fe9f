"""Keys and values are counted for models by whatever names they go."""

import pytest
from transformers import AutoConfig

from mortal_steps.models.shape import cache_bytes_per_token, is_recurrent

SHAPES = {
    "llama": {"hidden_size": 64, "num_attention_heads": 4, "num_key_value_heads": 2},
    "gpt2": {"n_embd": 64, "n_head": 2},
    "bloom": {"hidden_size": 64, "n_head": 2},
    "mpt": {"d_model": 64, "n_heads": 2},
    "gemma4_text": {"hidden_size": 64, "num_attention_heads": 2, "num_key_value_heads": 1},
    "mamba": {"hidden_size": 64},
}
FLOATS = {"llama": 2 * 32, "gpt2": 128, "bloom": 128, "mpt": 128, "gemma4_text": 1024, "mamba": 128}
"""Keys and values of one layer."""


@pytest.mark.parametrize("kind", SHAPES)
def test_by_the_names_of_each_kind(kind):
    config = AutoConfig.for_model(kind, **SHAPES[kind])
    settings = config.to_dict()
    layers = config.num_hidden_layers
    assert cache_bytes_per_token(settings) == FLOATS[kind] * layers * 4
    assert cache_bytes_per_token({"text_config": settings}) == FLOATS[kind] * layers * 4


@pytest.mark.parametrize(
    ("kind", "recurrent"),
    [("jamba", True), ("qwen3_next", True), ("lfm2", True), ("qwen3_moe", False), ("gpt2", False)],
)
def test_layers_with_a_state_are_told_by_their_settings(kind, recurrent):
    assert is_recurrent(AutoConfig.for_model(kind).to_dict()) is recurrent
