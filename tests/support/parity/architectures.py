"""Shapes of small models of many families.

Of those in `CONVERTED` transformers names some tensors otherwise in files than in modules.
"""

from __future__ import annotations

from typing import Any

SHAPE = {
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "num_key_value_heads": 2,
    "intermediate_size": 48,
    "max_position_embeddings": 64,
    "pad_token_id": 0,
    "eos_token_id": 1,
    "bos_token_id": None,
}
EXPERTS = {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 24}
ROUTED = {
    "n_routed_experts": 4,
    "num_experts_per_tok": 2,
    "moe_intermediate_size": 24,
    "n_group": 1,
    "topk_group": 1,
    "n_shared_experts": 1,
    "first_k_dense_replace": 1,
}
LATENT = {
    "kv_lora_rank": 8,
    "q_lora_rank": 8,
    "qk_rope_head_dim": 8,
    "qk_nope_head_dim": 8,
    "v_head_dim": 8,
}
GPT2 = {"n_embd": 32, "n_layer": 2, "n_head": 2, "n_positions": 64}
GEMMA = {"head_dim": 16, "query_pre_attn_scalar": 16}

PLAIN: dict[str, dict[str, Any]] = {
    "llama": {},
    "mistral": {},
    "qwen3": {"head_dim": 16, "tie_word_embeddings": True},
    "gemma2": GEMMA,
    "gemma3_text": GEMMA,
    "phi3": {},
    "olmo2": {},
    "granite": {},
    "stablelm": {},
    "smollm3": {},
    "cohere": {},
    "gpt2": GPT2,
    "gptj": {**GPT2, "rotary_dim": 8},
    "opt": {"ffn_dim": 48, "word_embed_proj_dim": 32},
    "bloom": {"n_layer": 2, "n_head": 2},
}
CONVERTED: dict[str, dict[str, Any]] = {
    "gpt_neox": {},
    "mixtral": {"num_local_experts": 4, "num_experts_per_tok": 2},
    "qwen2_moe": {**EXPERTS, "shared_expert_intermediate_size": 24},
    "qwen3_moe": {**EXPERTS, "head_dim": 16},
    "olmoe": {"num_experts": 4, "num_experts_per_tok": 2},
    "deepseek_v3": {**ROUTED, **LATENT},
    "glm4_moe": {**ROUTED, "head_dim": 16},
    "dots1": {**ROUTED, "head_dim": 16},
    "minimax": {"num_local_experts": 4, "num_experts_per_tok": 2, "head_dim": 16, "block_size": 8},
}
ARCHITECTURES = {**PLAIN, **CONVERTED}
MIXTURES = [name for name in CONVERTED if name != "gpt_neox"]
