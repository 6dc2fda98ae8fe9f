"""What a request asks for, and what it is answered, in any dialect."""

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from mortal_steps.types import FinishReason, PolicyVersion

Message = Mapping[str, Any]
Tools = Sequence[Mapping[str, Any]]
"""JSON schemas of functions."""

TOO_LONG = "context_length_exceeded"
"""OpenAI's code for a request that has no room; frameworks know it."""
KEPT = ("reasoning_content", "reasoning", "thinking")
"""Fields of an assistant's message that are kept beside its content and its calls."""
ROLES = frozenset(("system", "developer", "user", "assistant", "tool"))
"""Roles of OpenAI's protocol."""


class RefusedError(Exception):
    """A request that is answered with an error. `code` is OpenAI's, `stop` why the episode can say
    nothing more, if it cannot; after `retry_after_s` seconds the request may be made again."""

    def __init__(
        self,
        message: str,
        *,
        code: str = "invalid_request",
        status: int = 400,
        stop: str = "",
        retry_after_s: int | None = None,
    ) -> None:
        super().__init__(message)
        self.code, self.status, self.stop = code, status, stop
        self.retry_after_s = retry_after_s


@dataclass(frozen=True, kw_only=True, slots=True)
class Asked:
    """What a request asks the model to go on from."""

    messages: Sequence[Message] = ()
    """The dialogue, as chat templates take it."""
    tools: Tools = ()
    known_as: Sequence[str] = ()
    """Each message without what clients are known to change."""
    text: str | None = None
    """All that was said, as one text, in place of messages."""
    ids: Sequence[int] | None = None
    """All that was said, as tokens, in place of messages."""
    several: Sequence["Asked"] = ()
    """Several prompts, in place of one."""

    @property
    def digest(self) -> str:
        """The same for requests that ask for the same."""
        ids = None if self.ids is None else list(self.ids)
        parts = [list(self.known_as), list(self.tools), self.text, ids]
        return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()


@dataclass(frozen=True, kw_only=True, slots=True)
class Answer:
    """What the model said, once."""

    name: str
    """A name that tells the answer from others."""
    message: Message
    """The answer's message, as OpenAI has it."""
    prompt_ids: Sequence[int]
    """All tokens before the answer."""
    token_ids: Sequence[int]
    logprobs: Sequence[float]
    text: str
    """The answer's tokens as text, without special tokens."""
    finish_reason: FinishReason
    version: PolicyVersion | None = None
    """Version of the weights, where the answer names it."""


def template_message(given: Any, names: dict[Any, str]) -> Message:
    """Return a message as chat templates take it; `names` of tools are known by the ids of
    calls. Raises `RefusedError`."""
    if not isinstance(given, Mapping) or not isinstance(given.get("role"), str):
        raise RefusedError(f"{str(given)[:80]!r} is no message with a role")
    role, content = given["role"], _text(given.get("content"))
    if role == "tool":
        name = given.get("name") or names.get(given.get("tool_call_id")) or "tool"
        if not isinstance(name, str):
            raise RefusedError(f"the name {str(name)[:80]!r} of a tool is no text")
        return {"role": role, "name": name, "content": content}
    message = {"role": "system" if role == "developer" else role, "content": content}
    if role != "assistant":
        return message
    message |= {name: given[name] for name in KEPT if given.get(name)}
    calls = [_call(each, names) for each in given.get("tool_calls") or ()]
    return {**message, "tool_calls": calls} if calls else message


def known_as(message: Message) -> str:
    """Return the message without what clients are known to change when they send it back: ids of
    calls, arguments as text, what the model thought, spaces around what it said, fields that are
    null."""
    role, content = message["role"], message.get("content") or ""
    calls = [
        [called["name"], _arguments(called.get("arguments"))]
        for called in (each.get("function", each) for each in message.get("tool_calls") or ())
    ]
    if role == "assistant" and isinstance(content, str):
        content = content.strip()
    return json.dumps([role, content, calls], sort_keys=True)


def _call(given: Any, names: dict[Any, str]) -> dict[str, Any]:
    called = given.get("function") if isinstance(given, Mapping) else None
    if not isinstance(called, Mapping) or not isinstance(called.get("name"), str):
        raise RefusedError(f"{str(given)[:80]!r} is no call of a function")
    names[given.get("id")] = called["name"]
    arguments = called.get("arguments") or {}
    if isinstance(arguments, str):
        try:
            arguments = json.loads(arguments)
        except ValueError:
            raise RefusedError(f"arguments {arguments[:80]!r} of a call are no JSON") from None
    return {"type": "function", "function": {"name": called["name"], "arguments": arguments}}


def _text(content: Any) -> str:
    if content is None or isinstance(content, str):
        return content or ""
    if not isinstance(content, list):
        raise RefusedError(f"the content {str(content)[:80]!r} is neither text nor blocks of it")
    for block in content:
        if not isinstance(block, Mapping) or not isinstance(block.get("text"), str):
            raise RefusedError(f"{str(block)[:80]!r} is no text, and models here read text alone")
    return "".join(block["text"] for block in content)


def _arguments(arguments: Any) -> Any:
    if isinstance(arguments, str):
        try:
            return json.loads(arguments)
        except ValueError:
            return arguments
    return arguments or {}
