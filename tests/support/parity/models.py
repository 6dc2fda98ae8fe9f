"""Small random models of many families, all with one tokenizer of a character a token."""

from __future__ import annotations

from pathlib import Path

import torch
from transformers import AutoConfig, AutoModelForCausalLM, GenerationConfig

from mortal_steps.config import NewModelConfig
from mortal_steps.policy.starting_model.new_model import build_tokenizer
from tests.support.parity.architectures import ARCHITECTURES, SHAPE


def build(name: str, folder: Path, seed: int = 0, **sizes: int) -> None:
    """Write a model of the family and its tokenizer to `folder`; of other sizes than usual where
    some are given."""
    tokenizer = build_tokenizer(NewModelConfig())
    shape = {**SHAPE, "vocab_size": len(tokenizer), **ARCHITECTURES[name], **sizes}
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = AutoModelForCausalLM.from_config(AutoConfig.for_model(name, **shape))
    model.generation_config = GenerationConfig(eos_token_id=1, pad_token_id=0)
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
