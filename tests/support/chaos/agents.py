"""A project whose model calls tools under fire: in an environment, or tools alone."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator, Sequence
from pathlib import Path

from tests.support.chaos.schedule import Moment, Shot, Volley
from tests.support.environments.models import build_model

CONTEXT = 1024
VICTIMS = ("cell", "environments", "rollout-0", "rollout-1", "flow", "reward-0", "actor-0")
"""A fork with the episodes of a problem; the process that has the user's code; the workers."""

CODE = '''
import os
import random
import time

class Shop:
    """Counts; slow enough to be killed in."""

    def reset(self, target: int, **row) -> str:
        self.total, self.target = 0, target + random.randrange(3)
        return f" Reach {self.target}."

    def add(self, amount: int) -> str:
        """Add an amount.

        Args:
            amount: How much.
        """
        time.sleep(0.05)
        self.total += amount
        return f"total {self.total} {random.random():.6f}"

    def get_reward(self) -> float:
        return 1.0 / (1.0 + abs(self.total - self.target)) + random.random() / 10


def add(amount: int, call_id: str) -> str:
    """Add an amount.

    Args:
        amount: How much.
        call_id: Of the call.
    """
    with open("effects.txt", "a") as file:
        file.write(f"{os.environ.get('MORTAL_RUN', '')} {call_id}\\n")
    time.sleep(0.05)
    return f"added {amount} {random.random():.6f}"


def lottery(completions, **kwargs):
    """Other for nearly every completion, so that each step moves the weights."""
    return [sum(map(ord, str(messages))) % 11 / 10 for messages in completions]
'''

TALKER = '''
"""An engine that says what is written: the tiny model would never call a tool."""

import hashlib
import json
import random

from mortal_steps.rollout.engines.base import SampledTokens
from mortal_steps.rollout.engines.transformers.engine import TransformersEngine

CALL = '<tool_call>\\n{"name": "add", "arguments": {"amount": AMOUNT}}\\n</tool_call><|im_end|>'
TEXTS = [CALL.replace("AMOUNT", str(amount)) for amount in (1, 2, 3, 4)] + ["It is done.<|im_end|>"]


class Talker(TransformersEngine):
    def sample(self, prompts_ids, seeds, params):
        return [self._say(ids, seed, params) for ids, seed in zip(prompts_ids, seeds)]

    def _say(self, prompt_ids, seed, params):
        digest = hashlib.sha256(json.dumps([seed, list(prompt_ids)]).encode()).digest()
        drawn = random.Random(digest)
        text = drawn.choice(TEXTS)
        ids = self._tokenizer(text, add_special_tokens=False)["input_ids"][: params.max_tokens]
        return SampledTokens(
            token_ids=ids,
            logprobs=[drawn.uniform(-6.5, -6.0) for _ in ids],
            finish_reason="stop" if ids[-1] in self._end_ids else "length",
        )
'''

CONFIG = """
name = "chaos"
seed = 7

[model]
name_or_path = "model"

[data]
source = "train.jsonl"
eval_samples = 4

[environment]
{environment}
retries = 4

[rollout]
engine = "talker:Talker"
num_rollout_workers = 2
num_shards = 4
max_tokens = 400

[rewards]
functions = ["shop.py:lottery"]

[training]
batch_size = 8
num_generations = 2
learning_rate = 1e-3
max_completion_length = 400
gradient_checkpointing = false

[evaluation]
eval_steps = 3

[checkpoints]
save_steps = 3

[compute.local.actor]
threads = 1
"""
ENVIRONMENTS = {"agent": 'factory = "shop.py:Shop"', "tools": 'tools = ["shop.py:add"]'}


def write_agents(folder: Path, variant: str) -> None:
    """Write a user's project: `chaos.toml`, the model, the dataset, the environment, the engine."""
    build_model(folder / "model", "qwen3", context=CONTEXT)
    rows = [
        {"prompt": [{"role": "user", "content": f"Count to {number}."}], "target": number}
        for number in range(40)
    ]
    (folder / "train.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (folder / "shop.py").write_text(CODE)
    (folder / "talker.py").write_text(TALKER)
    environment = ENVIRONMENTS[variant.partition("-")[0]]
    (folder / "chaos.toml").write_text(CONFIG.format(environment=environment))


def volleys(seed: int, num_kills: int) -> list[Volley]:
    """At least `num_kills` kills, most of them inside episodes, each victim as often as the others.
    A cell lives no longer than the episodes in it."""
    drawn, chosen = random.Random(seed), list[Volley]()
    while len(chosen) < num_kills:
        chosen += _deck(drawn)
    return chosen[:num_kills]


def _deck(drawn: random.Random) -> Iterator[Volley]:
    moments: Sequence[tuple[str, Moment]] = (("generate", "inside"), ("generate", "after"))
    victims = list(VICTIMS)
    drawn.shuffle(victims)
    for victim in victims:
        stage, moment = drawn.choices(moments, (4, 0 if victim == "cell" else 1))[0]
        stage = drawn.choice((stage, stage, stage, "evaluate"))
        fraction = drawn.uniform(0.0, 0.9) if moment == "inside" else 0.0
        yield (Shot(victims=(victim,), stage=stage, moment=moment, fraction=fraction),)
