"""Agents as users write them: functions that ask the model themselves."""

from __future__ import annotations

import json
import os
import random
import signal
import time
import urllib.request
from pathlib import Path

import openai

from tests.support.environments.code import Shop, note_effect


def _tool(name: str, says: str, returns: str, **parameters) -> dict:
    given = {"type": "object", "properties": parameters}
    if name == "add":
        given["required"] = ["amount"]
    returned = {"type": returns}
    function = {"name": name, "description": says, "parameters": given, "return": returned}
    return {"type": "function", "function": function}


HOW_MUCH = {"type": "integer", "description": "How much to add."}
TOOLS = [
    _tool(
        *("add", "Add an amount.", "string"),
        amount=HOW_MUCH,
        what={"type": "string", "description": "Of what."},
    ),
    _tool("count", "Return the total.", "integer"),
    _tool("fail", "Fail.", "string", amount={**HOW_MUCH, "description": "Anything."}),
    _tool("history", "Return the total so far as blocks of content.", "array"),
]
"""As `get_json_schema` says it, which takes seconds to import."""
NAMES = ("add", "count", "fail", "history")


def shopping(base_url: str, prompt: list, target: int, trouble: str = "", **row) -> dict:
    """Shop with a tool loop of its own, as GRPOTrainer does with `Shop`.

    `trouble` says what happens after the second turn, and in which folder it is noted, once for
    each target: `kill:/tmp/x`.
    """
    shop, last = Shop(), prompt[-1]
    told = shop.reset(target=target, **row)
    kind, _, folder = trouble.partition(":")
    if kind == "dated":
        told += f" It is {time.time()}."
    if kind == "differ" and (Path(folder) / f"{target}").exists():  # it was killed before
        told += " Once more."
    messages = [*prompt[:-1], {**last, "content": last["content"] + told}]
    client = openai.OpenAI(base_url=base_url, api_key="none", max_retries=0)
    try:
        while True:
            asked = client.chat.completions.create(model="policy", messages=messages, tools=TOOLS)
            message = asked.choices[0].message
            messages.append(message.model_dump(exclude_none=True))
            if not message.tool_calls:
                break
            for call in message.tool_calls:
                answer = _answer(shop, call.function.name, call.function.arguments)
                messages.append({"role": "tool", "tool_call_id": call.id, "content": answer})
            if "EFFECTS" in os.environ:
                note_effect(f"{target}/{len(messages)}/0/0")
            if len(messages) > 4 and ":" in trouble:
                _meet(trouble, target, messages)
    except openai.BadRequestError as error:
        assert error.code == "context_length_exceeded"
    return {"reward": shop.get_reward(), "drawn": random.random()}


def _answer(shop: Shop, name: str, arguments: str) -> str:
    try:
        if name not in NAMES:
            raise ValueError(f"Tool {name} not found.")
        return str(getattr(shop, name)(**json.loads(arguments)))
    except Exception as error:  # noqa: BLE001 - as GRPOTrainer does
        return str({"error": str(error)})


def _meet(trouble: str, target: int, messages: list) -> None:
    kind, _, folder = trouble.partition(":")
    try:
        (Path(folder) / f"{target}").touch(exist_ok=False)
    except FileExistsError:
        if not kind.startswith("always"):
            return
    match kind.removeprefix("always-"):
        case "kill" | "differ":
            os.kill(os.getpid(), signal.SIGKILL)
        case "hang":
            time.sleep(600)
        case "outage":
            raise ConnectionError("the shop is away")
        case "ask":
            port = (Path(folder) / "port").read_text()
            urllib.request.urlopen(f"http://127.0.0.1:{port}").close()
        case "raise":
            raise KeyError("a slip")
        case "rewrite":
            messages[0] = {**messages[0], "content": f"Forget it. {len(messages)}"}


def dated(base_url: str, **row) -> dict:
    """Shop, and say what time it is."""
    return shopping(base_url, **{**row, "trouble": "dated"})
