"""Completions of chats as messages, where the tokenizer knows how to take them apart.

A tokenizer with a `response_template` parses what its model writes into content, reasoning and tool
calls, and TRL gives reward functions that. (With the older `response_schema` alone, which this
transformers does not know any more, TRL ends in an error; here there is text.) This is
`trl.chat_template_utils.parse_response`, which is not at hand where vLLM runs.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any


def can_parse(tokenizer: Any) -> bool:
    """Whether TRL would let the tokenizer parse the completions of chats."""
    return getattr(tokenizer, "response_template", None) is not None


def parse(tokenizer: Any, token_ids: Sequence[int], prompt_ids: Sequence[int]) -> dict[str, Any]:
    """The message that a completion is; its plain text as content where it cannot be parsed."""
    ids = list(token_ids)
    try:
        message = tokenizer.parse_response(ids, prefix=list(prompt_ids), tools=None)
        if message is None:  # cut short before its content
            raise ValueError("no message")
        if isinstance(message.get("content"), str):
            message["content"] = message["content"].removesuffix(tokenizer.eos_token)
        if not message.get("content"):
            message["content"] = ""
        if "tool_calls" in message:
            _check_tool_calls(message["tool_calls"])
        # What no record can hold (half of a surrogate pair, nan) is no message either.
        json.dumps(message, ensure_ascii=False, allow_nan=False).encode()
    except (ValueError, TypeError):
        content = tokenizer.decode(ids, skip_special_tokens=True)
        message = {"role": "assistant", "content": content}
    return dict(message)


def _check_tool_calls(calls: Any) -> None:
    """Raise `ValueError` for calls that chat templates cannot render; no arguments are `{}`."""
    if calls is None:
        return
    if not isinstance(calls, list):
        raise ValueError("the tool calls are no list")
    for call in calls:
        called = call.get("function", call) if isinstance(call, dict) else None
        if not isinstance(called, dict) or not isinstance(called.get("name"), str):
            raise ValueError("a tool call has no name")
        if called.get("arguments") is None:
            called["arguments"] = {}
