"""Teach a tiny model to say what scripts hold, so that a real engine has calls to sample."""

from __future__ import annotations

import random
from collections.abc import Sequence
from pathlib import Path

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from tests.support.environments.engine import tokenized_at_random

STEPS, ROWS = 120, 16
WINDOW = 16
"""Tokens that the model sees: what it says does not depend on the prompt before its opening."""


def teach(folder: Path, opening: str, texts: Sequence[str]) -> None:
    """Train the model in the folder until it says one of the texts after the `opening`."""
    tokenizer = AutoTokenizer.from_pretrained(folder)
    model = AutoModelForCausalLM.from_pretrained(folder)
    drawn = random.Random(0)
    start = tokenizer(opening, add_special_tokens=False)["input_ids"]
    learner = torch.optim.AdamW(model.parameters(), lr=4e-3)
    for _ in range(STEPS):
        rows = [_row(tokenizer, start, drawn.choice(texts), drawn) for _ in range(ROWS)]
        longest = max(len(ids) for ids, _ in rows)
        ids = torch.tensor([ids + [0] * (longest - len(ids)) for ids, _ in rows])
        labels = torch.tensor([said + [-100] * (longest - len(said)) for _, said in rows])
        learner.zero_grad()
        model(input_ids=ids, labels=labels).loss.backward()
        learner.step()
    model.save_pretrained(folder)


def _row(tokenizer, start, text, drawn):
    """Return ids, and the labels of those that are learned."""
    before = [drawn.randrange(1, len(tokenizer)) for _ in range(drawn.randrange(WINDOW))]
    said = tokenized_at_random(tokenizer, text, drawn)
    return [*before, *start, *said], [*[-100] * (len(before) + len(start)), *said]
