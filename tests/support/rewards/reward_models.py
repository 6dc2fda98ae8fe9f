"""Small reward models, random ones, with a tokenizer of a character a token and a chat template."""

from pathlib import Path

import torch
from transformers import AutoModelForSequenceClassification, AutoTokenizer, Qwen3Config

from tests.support.rollout.tiny_model import build_tiny_model

TEMPLATE = "{% for m in messages %}{{ m['role'] }}: {{ m['content'] }}{{ ending }}\n{% endfor %}"
"""With an option, `ending`."""

CONTEXT = 64
"""Tokens that they take."""


def build_reward_model(folder: Path, *, num_labels: int = 1, head: bool = True) -> Path:
    """Write a whole folder and return it; without a `head` it is a language model."""
    build_tiny_model(folder, seed=5)
    tokenizer = AutoTokenizer.from_pretrained(folder)
    tokenizer.chat_template = TEMPLATE
    tokenizer.save_pretrained(folder)
    if head:
        config = Qwen3Config.from_pretrained(folder)
        config.num_labels, config.max_position_embeddings = num_labels, CONTEXT
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(6)
            model = AutoModelForSequenceClassification.from_config(config)
        model.save_pretrained(folder)
    return folder


def without_padding(folder: Path) -> Path:
    """Return the same with a tokenizer that has no padding token of its own."""
    tokenizer = AutoTokenizer.from_pretrained(folder)
    tokenizer.pad_token = None
    tokenizer.save_pretrained(folder)
    return folder
