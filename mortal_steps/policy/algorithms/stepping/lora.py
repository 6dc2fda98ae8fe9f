"""`[training.lora]` as PEFT takes it."""

from __future__ import annotations

from peft import LoraConfig

from mortal_steps.config import RunConfig


def lora_config(config: RunConfig) -> LoraConfig | None:
    """None where whole models are trained."""
    if not config.training.use_lora:
        return None
    lora = config.training.lora
    targets = lora.target_modules
    return LoraConfig(
        task_type="CAUSAL_LM",
        r=lora.r,
        lora_alpha=lora.alpha,
        lora_dropout=lora.dropout,
        target_modules=targets if isinstance(targets, str) else list(targets),
    )
