"""The project that is trained under fire: a model, a dataset and a reward of next to no size."""

from __future__ import annotations

import json
import random
import string
import tomllib
from collections.abc import Mapping
from pathlib import Path

from tests.support.paths import VLLM_PYTHON

VARIANTS: Mapping[str, tuple[str, ...]] = {
    "plain": (),
    "staleness-1": ("rollout.staleness=1",),
    "staleness-2": ("rollout.staleness=2",),
    "lora": ("training.use_lora=true", "training.lora.r=4", "training.lora.dropout=0.1"),
    "ranks": ("training.ranks=2",),
    "accumulation": ("training.gradient_accumulation_steps=4", "training.num_iterations=2"),
    "distillation": (
        *("algorithm.type=distillation", "algorithm.teacher=teacher", "algorithm.beta=0.5"),
        *("training.num_generations=1", "training.gradient_accumulation_steps=2"),
        "rollout.staleness=1",
    ),
    "opd": (
        *("algorithm.type=opd", "algorithm.teachers.main=teacher", "rollout.staleness=1"),
        *("rewards.functions=[]", 'evaluation.functions=["rewards.py:lottery"]'),
    ),
}
"""What each variant sets beyond CONFIG."""

AGENTS: Mapping[str, tuple[str, ...]] = {
    "agent": (),
    "agent-staleness-1": ("rollout.staleness=1",),
    "agent-3-workers": ("rollout.num_rollout_workers=3",),
    "agent-own-cells": ('environment.cell="episode"',),
    "agent-selecting": ("selection.type=dynamic", 'rewards.functions=["shop.py:seldom"]'),
    "tools": (),
    "asking": (),
    "asking-served": (),
    "served": (),
}
"""The same of runs whose model calls tools (agents.py): in an environment of the user's, in tools
alone, in an agent that asks the model itself, in one whose game is at a server, at a server of
OpenEnv's."""

ROWS: Mapping[str, tuple[str, ...]] = {"sft": (), "dpo": ()}
"""The same of runs that learn from rows (rows.py)."""

SELDOM = 'rewards.functions=["rewards.py:seldom"]'
SELECTING: Mapping[str, tuple[str, ...]] = {
    "dynamic": ("selection.type=dynamic", SELDOM),
    "screen": ("selection.type=screen", "selection.first=2", SELDOM),
    "curriculum": ("selection.type=curriculum", "selection.pool=2", SELDOM),
}
KINDS = tuple(SELECTING)
SELECTIONS: Mapping[str, tuple[str, ...]] = {
    f"{(kind := KINDS[(workers + ahead) % 3])}-{workers}-workers-{ahead}-ahead": (
        *SELECTING[kind],
        f"rollout.num_rollout_workers={workers}",
        f"rollout.staleness={ahead}",
    )
    for workers in (1, 2, 3)
    for ahead in (0, 1, 2)
} | {
    "dynamic-ranks": (*SELECTING["dynamic"], "training.ranks=2"),
    "screen-vllm": (
        *SELECTING["screen"],
        "rollout.engine=vllm",
        f"compute.local.rollout.python={VLLM_PYTHON}",
        "rollout.num_rollout_workers=1",
    ),
}
"""The same of runs that select what they sample (selections.py); most of their groups are of no
use."""

SERVED = ("asking-served", "served")
"""Those of them with a server that can be killed."""

NUM_ROLLOUT_WORKERS = 2
NUM_SHARDS = 4

REWARDS = '''
import time

def lottery(completions, answer, **kwargs):
    """Other for nearly every completion, so that each step moves the weights."""
    time.sleep(0.02)  # long enough to be killed in
    return [sum(map(ord, text + right)) % 11 / 10 for text, right in zip(completions, answer)]


def seldom(completions, answer, **kwargs):
    """The same for one word in three; for the others, no completion is better than another."""
    rewards = lottery(completions, answer)
    return [
        reward if sum(map(ord, right)) % 3 == 0 else 0.0
        for reward, right in zip(rewards, answer)
    ]
'''

MODEL_AND_DATA = """
[model.new]
hidden_size = 32
head_dim = 32
num_layers = 1
intermediate_size = 32
max_position_embeddings = 64

[data]
source = "train.jsonl"
eval_samples = 8
"""

CONFIG = f"""
name = "chaos"
seed = 7
{MODEL_AND_DATA}
[rollout]
engine = "transformers"
num_rollout_workers = {NUM_ROLLOUT_WORKERS}
num_shards = {NUM_SHARDS}
max_tokens = 6

[rewards]
functions = ["rewards.py:lottery"]

[training]
batch_size = 8
num_generations = 4
learning_rate = 1e-3
max_completion_length = 6
gradient_checkpointing = false

[evaluation]
eval_steps = 3

[checkpoints]
save_steps = 3

[compute.local.actor]
threads = 1
"""


def write_project(folder: Path, variant: str = "plain") -> None:
    """A user's project: `chaos.toml`, its dataset and its reward function, and a teacher if the
    variant learns from one. Rewards change no bit of that."""
    write_words(folder / "train.jsonl")
    (folder / "rewards.py").write_text(REWARDS)
    (folder / "chaos.toml").write_text(CONFIG)
    if variant in ("distillation", "opd"):
        write_teacher(folder / "teacher")


def write_teacher(folder: Path) -> None:
    """A model of two layers with the vocabulary of the one that is trained."""
    # Imported where used: imports torch.
    from mortal_steps.config import NewModelConfig
    from mortal_steps.policy.starting_model.new_model import build_model

    student = tomllib.loads(MODEL_AND_DATA)["model"]["new"]
    folder.mkdir()
    build_model(folder, NewModelConfig(**{**student, "num_layers": 2}), seed=5)


def write_words(path: Path) -> None:
    """Sixty words of three letters; the answer is the word reversed."""
    rng = random.Random(0)
    words = ["".join(rng.choices(string.ascii_lowercase[:6], k=3)) for _ in range(60)]
    rows = [{"prompt": f"{word}=", "answer": word[::-1]} for word in words]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
