"""Projects whose model calls tools under fire: in an environment, at a server, in an agent."""

from __future__ import annotations

import itertools
import json
import math
import random
from collections.abc import Iterator, Sequence
from pathlib import Path

from tests.support.chaos.project import SERVED
from tests.support.chaos.schedule import GAME, Moment, Shot, Volley
from tests.support.environments.models import build_model

CONTEXT = 1024
VICTIMS = ("cell", "environments", "rollout-0", "rollout-1", "flow", "reward-0", "actor-0")
"""A fork with the episodes of a problem, or with an agent; the process that it is a fork of, which
has the user's code; the workers."""

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


def seldom(completions, target, **kwargs):
    """The same for one problem in three; for the others, no completion is better than another."""
    rewards = lottery(completions)
    return [0.0 if of % 3 else reward for reward, of in zip(rewards, target)]
'''

ASKING = '''
import json
import random
import time

import openai
import shop
from websockets.exceptions import WebSocketException
from websockets.sync.client import connect

TOOLS = [
    {
        "type": "function",
        "function": {
            "name": "add",
            "parameters": {"type": "object", "properties": {"amount": {"type": "integer"}}},
        },
    }
]


class Served:
    """The game at a server, for which an agent has to wait itself."""

    def reset(self, target):
        while True:
            try:
                self.connection = connect("ws://ADDRESS", proxy=None)
                return self.asked("reset", {"target": target, "seed": self.seed})["text"]
            except (OSError, WebSocketException):
                time.sleep(0.25)

    def add(self, amount):
        call = {"type": "call_tool", "tool_name": "add", "arguments": {"amount": amount}}
        return self.asked("step", call)["result"]["content"][0]["text"]

    def asked(self, kind, data):
        try:
            self.connection.send(json.dumps({"type": kind, "data": data}))
            answer = json.loads(self.connection.recv())["data"]
        except WebSocketException as error:
            raise ConnectionError(f"the session was lost: {error}") from None
        self.reward = answer["reward"] or 0.01
        return answer["observation"]

    def get_reward(self):
        return self.reward


def counts(base_url: str, prompt: list, target: int) -> float:
    return play(shop.Shop(), base_url, prompt, target)


def counts_served(base_url: str, prompt: list, target: int) -> float:
    game = Served()
    game.seed = random.randrange(2**31)
    return play(game, base_url, prompt, target)


def play(game, base_url, prompt, target):
    begun = prompt[-1]["content"] + game.reset(target=target)
    messages = [*prompt[:-1], {**prompt[-1], "content": begun}]
    client = openai.OpenAI(base_url=base_url, api_key="none")
    while True:
        try:
            said = client.chat.completions.create(model="policy", messages=messages, tools=TOOLS)
        except openai.BadRequestError:  # there is no room for more
            return game.get_reward()
        message = said.choices[0].message
        messages.append(message)
        if not message.tool_calls:
            return game.get_reward()
        for call in message.tool_calls:
            told = game.add(**json.loads(call.function.arguments))
            messages.append({"role": "tool", "tool_call_id": call.id, "content": told})
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
ENVIRONMENTS = {
    "agent": 'factory = "shop.py:Shop"',
    "tools": 'tools = ["shop.py:add"]',
    "asking": 'type = "agent"\nagent = "asking.py:counts"',
    "asking-served": 'type = "agent"\nagent = "asking.py:counts_served"',
    "served": 'type = "openenv"\nurl = "http://{address}"\nobservation = "text"',
}


def write_agents(folder: Path, variant: str, address: str) -> None:
    """Write a user's project: `chaos.toml`, the model, the dataset, the environment, the engine.
    The game is at `address`."""
    build_model(folder / "model", "qwen3", context=CONTEXT)
    rows = [
        {"prompt": [{"role": "user", "content": f"Count to {number}."}], "target": number}
        for number in range(40)
    ]
    (folder / "train.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (folder / "shop.py").write_text(CODE)
    (folder / "talker.py").write_text(TALKER)
    (folder / "asking.py").write_text(ASKING.replace("ADDRESS", address))
    name = variant if variant in ENVIRONMENTS else variant.partition("-")[0]
    environment = ENVIRONMENTS[name].format(address=address)
    (folder / "chaos.toml").write_text(CONFIG.format(environment=environment))


def hands(seed: int, num_kills: int, variants: Sequence[str]) -> list[list[Volley]]:
    """Return at least `num_kills` kills for all variants together, most of them inside episodes,
    each victim as often as the others. A cell lives no longer than the episodes in it."""
    each, drawn = math.ceil(num_kills / len(variants)), random.Random(seed)
    found = []
    for variant in variants:
        victims = (*VICTIMS, *([GAME] if variant in SERVED else []))
        decks = (_deck(drawn, victims) for _ in range(each))
        found.append(list(itertools.islice(itertools.chain.from_iterable(decks), each)))
    return found


def _deck(drawn: random.Random, chosen: Sequence[str]) -> Iterator[Volley]:
    moments: Sequence[tuple[str, Moment]] = (("generate", "inside"), ("generate", "after"))
    victims = list(chosen)
    drawn.shuffle(victims)
    for victim in victims:
        stage, moment = drawn.choices(moments, (4, 0 if victim == "cell" else 1))[0]
        stage = drawn.choice((stage, stage, stage, "evaluate"))
        fraction = drawn.uniform(0.0, 0.9) if moment == "inside" else 0.0
        yield (Shot(victims=(victim,), stage=stage, moment=moment, fraction=fraction),)
