"""The safes of safe.py for a model that is asked by a program of its own: any framework that speaks
to an OpenAI-compatible address would do.

    [environment]
    type = "agent"
    agent = "examples/agent/loop.py:opens"
"""

from __future__ import annotations

import json
from typing import Any

import openai


def _tool(name: str, parameter: str) -> dict[str, Any]:
    parameters = {"type": "object", "properties": {parameter: {"type": "string"}}}
    return {"type": "function", "function": {"name": name, "parameters": parameters}}


TOOLS = [_tool("ask", "safe"), _tool("open", "code")]


async def opens(base_url: str, prompt: list, safe: str, code: str) -> float:
    """Return whether the model opens the safe at its first try."""
    tried, messages = [], list(prompt)
    async with openai.AsyncOpenAI(base_url=base_url, api_key="none") as client:
        for _ in range(4):
            said = await client.chat.completions.create(
                model="policy", messages=messages, tools=TOOLS
            )
            message = said.choices[0].message
            messages.append(message)
            for call in message.tool_calls or ():
                given = json.loads(call.function.arguments)
                if call.function.name == "ask":
                    answer = code if given.get("safe") == safe else "unknown"
                else:
                    tried.append(given.get("code"))
                    answer = "open" if tried[0] == code else "shut"
                messages.append({"role": "tool", "tool_call_id": call.id, "content": answer})
            if not message.tool_calls:
                break
    return float(tried[:1] == [code])
