"""Agents as users write them: functions that ask the model themselves."""

from __future__ import annotations

import json

import openai
from transformers.utils import get_json_schema

from tests.support.environments.code import Shop


def shopping(base_url: str, prompt: list, target: int, **row) -> float:
    """Shop with a tool loop of its own, as GRPOTrainer does with `Shop`."""
    shop, last = Shop(), prompt[-1]
    told = shop.reset(target=target, **row)
    messages = [*prompt[:-1], {**last, "content": last["content"] + told}]
    names = ("add", "count", "fail", "history")
    tools = [get_json_schema(getattr(shop, name)) for name in names]
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
    except openai.BadRequestError as error:
        assert error.code == "context_length_exceeded"
    return shop.get_reward()


def _answer(shop: Shop, name: str, arguments: str) -> str:
    try:
        if name not in ("add", "count", "fail", "history"):
            raise ValueError(f"Tool {name} not found.")
        return str(getattr(shop, name)(**json.loads(arguments)))
    except Exception as error:  # noqa: BLE001 - as GRPOTrainer does
        return str({"error": str(error)})
