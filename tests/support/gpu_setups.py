"""The machines of docs/gpu.md, and what is trained on them."""

from tests.support.made_up_gpus import several

SMALL, LARGE = "Qwen2.5-0.5B-Instruct", "Qwen2.5-7B-Instruct"
PROMPT = 150
"""Tokens of the longest prompt, as in GSM8K."""
LORA = {"use_lora": True, "lora": {"r": 16}}

SETUPS = {
    "One GPU with 24 GB": (several(1, "NVIDIA GeForce RTX 4090", 23.5), {}),
    "One GPU with 80 GB": (several(1, "NVIDIA A100-SXM4-80GB", 79.2), {}),
    "Two GPUs with 24 GB": (several(2, "NVIDIA GeForce RTX 4090", 23.5), {}),
    "Eight GPUs with 80 GB": (
        several(8, "NVIDIA H100 80GB HBM3", 79.2),
        {"training": {"batch_size": 32, "num_generations": 8}},
    ),
    "Modal: one A100 and two A10G": (
        [],
        {
            "compute": {
                "backend": "modal",
                "modal": {"actor": "A100-80GB", "rollout": "A10G"},
            }
        },
    ),
    "7B with LoRA on one GPU with 80 GB": (
        several(1, "NVIDIA A100-SXM4-80GB", 79.2),
        {"model": {"name_or_path": LARGE, "dtype": "bfloat16"}, "training": LORA},
    ),
}


def values_of(changes):
    """What a run of such a set-up is configured with."""
    return {"model": {"name_or_path": SMALL}, "rollout": {"engine": "vllm"}} | changes
