"""Stands first in a script of documented examples: the same trainer, with a tiny model and dataset.

What the examples leave to the reader (`dataset`, `ds`, `quality_reward`) is there as well, and the
names of the library, which pages import once.
"""

import functools
import os
from pathlib import Path

import trl
from datasets import Dataset

import mortal
from mortal import (
    DistillationTrainer,
    Distributed,
    GPUConfig,
    MortalTrainer,
    SFTTrainer,
    SingleNode,
)
from mortal.rewards.extraction import extract_code
from mortal_steps.config.model import NewModelConfig

__all__ = [
    "Distributed",
    "GPUConfig",
    "LocalTrainer",
    "SingleNode",
    "dataset",
    "ds",
    "extract_code",
    "quality_reward",
]

MODEL = "a-model"
SHAPE = NewModelConfig(
    hidden_size=32, num_layers=1, intermediate_size=32, max_position_embeddings=64
)
SMALL = {"batch_size": 2, "num_generations": 2, "max_completion_length": 8}

os.environ.setdefault("OPENAI_API_KEY", "nobody's")
dataset = ds = Dataset.from_list(
    [
        {"prompt": f"print({a} + {b})", "answer": str(a + b), "testcase": [f"assert {a} >= 0"]}
        for a in range(3)
        for b in range(3)
    ]
)


def quality_reward(completions, **kwargs):
    return [0.5] * len(completions)


def build_once():
    if not Path(MODEL).exists():
        from mortal_steps.policy.starting_model.new_model import build_model

        build_model(Path(MODEL), SHAPE, seed=1)


class LocalTrainer(MortalTrainer):
    """Takes what the examples give, but for models and datasets of the hub, and sizes."""

    def __init__(self, model=MODEL, *arguments, **given):
        build_once()
        for name in ("train_dataset", "eval_dataset"):
            if isinstance(given.get(name), str):
                given[name] = dataset
        given.setdefault("train_dataset", dataset)
        if "args" not in given:
            given["max_steps"] = min(2, given.get("max_steps", 2))
            given = {**SMALL, **given}
        super().__init__(MODEL, *arguments, **given)


class LocalSFTTrainer(SFTTrainer):
    """The same of the trainers that learn from rows."""

    def __init__(self, model, **given):
        build_once()
        super().__init__(MODEL, **given)


class LocalDistillationTrainer(DistillationTrainer):
    """The same of a student, which learns from a model like itself."""

    def __init__(self, model, teacher_model, **given):
        build_once()
        super().__init__(MODEL, MODEL, **given)


mortal.MortalTrainer, mortal.SFTTrainer = LocalTrainer, LocalSFTTrainer
mortal.DistillationTrainer = LocalDistillationTrainer
trl.GRPOConfig = functools.partial(trl.GRPOConfig, max_steps=2, bf16=False)
trl.SFTConfig = functools.partial(trl.SFTConfig, max_steps=2, bf16=False)
trl.DistillationConfig = functools.partial(trl.DistillationConfig, max_steps=2, bf16=False)
