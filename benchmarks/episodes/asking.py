"""The agent of the benchmark: it asks the model itself, and answers its calls."""

from __future__ import annotations

import json
from typing import Any

import openai

from benchmarks.episodes.shop import Shop

AMOUNT = {"amount": {"type": "integer"}, "who": {"type": "string"}}
ADD = {"name": "add", "parameters": {"type": "object", "properties": AMOUNT}}
TOOLS: Any = [{"type": "function", "function": ADD}]


def fills(base_url: str, prompt: list[Any], target: int) -> float:
    """Fill the basket; return what `Shop` makes of it."""
    shop, messages = Shop(), list(prompt)
    shop.reset(target)
    client = openai.OpenAI(base_url=base_url, api_key="none")
    while True:
        said = client.chat.completions.create(model="policy", messages=messages, tools=TOOLS)
        message: Any = said.choices[0].message
        messages.append(message)
        if not message.tool_calls:
            return shop.get_reward()
        for call in message.tool_calls:
            told = shop.add(**json.loads(call.function.arguments))
            messages.append({"role": "tool", "tool_call_id": call.id, "content": told})
