"""Agents as users write them: functions that ask the model themselves."""

from __future__ import annotations

import json
import os
import random
import signal
import time
from pathlib import Path

import openai
from transformers.utils import get_json_schema

from tests.support.environments.code import Shop

TROUBLE = "TROUBLE"
"""Variable with what happens to `shopping` after its second turn, and a folder in which it is noted:
`kill:/tmp/x`, once for each target."""
NAMES = ("add", "count", "fail", "history")


def shopping(base_url: str, prompt: list, target: int, **row) -> float:
    """Shop with a tool loop of its own, as GRPOTrainer does with `Shop`."""
    shop, last = Shop(), prompt[-1]
    told = shop.reset(target=target, **row)
    messages = [*prompt[:-1], {**last, "content": last["content"] + told}]
    tools = [get_json_schema(getattr(shop, name)) for name in NAMES]
    client = openai.OpenAI(base_url=base_url, api_key="none", max_retries=0)
    try:
        while True:
            asked = client.chat.completions.create(model="policy", messages=messages, tools=tools)
            message = asked.choices[0].message
            messages.append(message.model_dump(exclude_none=True))
            if not message.tool_calls:
                break
            for call in message.tool_calls:
                answer = _answer(shop, call.function.name, call.function.arguments)
                messages.append({"role": "tool", "tool_call_id": call.id, "content": answer})
            if len(messages) > 4:
                _trouble(target, messages)
    except openai.BadRequestError as error:
        assert error.code == "context_length_exceeded"
    return shop.get_reward() + random.random()


def _answer(shop: Shop, name: str, arguments: str) -> str:
    try:
        if name not in NAMES:
            raise ValueError(f"Tool {name} not found.")
        return str(getattr(shop, name)(**json.loads(arguments)))
    except Exception as error:  # noqa: BLE001 - as GRPOTrainer does
        return str({"error": str(error)})


def _trouble(target: int, messages: list) -> None:
    kind, _, folder = os.environ.get(TROUBLE, "").partition(":")
    if not kind:
        return
    try:
        (Path(folder) / f"{target}").touch(exist_ok=False)
    except FileExistsError:
        if not kind.startswith("always"):
            return
    match kind.removeprefix("always-"):
        case "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        case "hang":
            time.sleep(600)
        case "outage":
            raise ConnectionError("the shop is away")
        case "raise":
            raise KeyError("a slip")
        case "rewrite":
            messages[0] = {**messages[0], "content": f"Forget it. {os.getpid()}"}
        case "differ":
            messages[0] = {**messages[0], "content": f"It is {time.time()}."}
            os.kill(os.getpid(), signal.SIGKILL)
