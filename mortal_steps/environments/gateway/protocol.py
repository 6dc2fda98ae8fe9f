"""Requests and answers as OpenAI's clients know them, with what vLLM adds to them."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from mortal_steps.environments.chat import Chat, Message
from mortal_steps.environments.gateway.conversation import (
    TOO_LONG,
    Answer,
    Asked,
    RefusedError,
    known_as,
)

KEPT = ("reasoning_content", "reasoning", "thinking")
"""What an assistant's message may hold beside its content and its calls."""


def asked_in(body: Mapping[str, Any]) -> Asked:
    """Return what a request for a chat completion asks for; raise `RefusedError`."""
    given = body.get("messages")
    if not isinstance(given, list) or not given:
        raise RefusedError("`messages` is no list of messages")
    if body.get("n") not in (None, 1):
        raise RefusedError(
            f"n = {body['n']}: a dialogue goes on with one answer; training.num_generations says "
            "how many episodes a problem has"
        )
    names: dict[Any, str] = {}
    messages = [_message(each, names) for each in given]
    return Asked(
        messages=messages,
        tools=body.get("tools") or (),
        known_as=[known_as(each) for each in messages],
    )


def _message(given: Any, names: dict[Any, str]) -> Message:
    """Return a message as chat templates take it; `names` of tools are known by the ids of
    calls."""
    if not isinstance(given, Mapping) or not isinstance(given.get("role"), str):
        raise RefusedError(f"{str(given)[:80]!r} is no message with a role")
    role, content = given["role"], _text(given.get("content"))
    if role == "tool":
        name = given.get("name") or names.get(given.get("tool_call_id")) or "tool"
        return {"role": role, "name": name, "content": content}
    message = {"role": "system" if role == "developer" else role, "content": content}
    if role != "assistant":
        return message
    message |= {name: given[name] for name in KEPT if given.get(name)}
    calls = given.get("tool_calls") or ()
    for call in calls:
        names[call.get("id")] = call["function"]["name"]
    if calls:
        message["tool_calls"] = [_call(each["function"]) for each in calls]
    return message


def _call(called: Mapping[str, Any]) -> dict[str, Any]:
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


def chat_completion(answer: Answer, body: Mapping[str, Any], chat: Chat) -> dict[str, Any]:
    """Return the answer to a request for a chat completion."""
    choice: dict[str, Any] = {
        "index": 0,
        "message": _said(answer),
        "logprobs": _logprobs(answer, body, chat) if body.get("logprobs") else None,
        "finish_reason": _finish_reason(answer),
    }
    found = {**_head(answer, body, "chat.completion"), "choices": [choice]}
    found["usage"] = _usage(answer)
    if body.get("return_token_ids"):
        choice["token_ids"] = list(answer.token_ids)
        found["prompt_token_ids"] = list(answer.prompt_ids)
    return found


def chat_chunks(whole: Mapping[str, Any], body: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield a chat completion in the parts that a stream has."""
    (choice,) = whole["choices"]
    head = {name: whole[name] for name in ("id", "created", "model")}
    head["object"] = "chat.completion.chunk"
    message = dict(choice["message"])
    calls = message.pop("tool_calls", None)
    if calls:
        message["tool_calls"] = [{"index": n, **call} for n, call in enumerate(calls)]
    first = {"index": 0, "delta": message, "logprobs": choice["logprobs"], "finish_reason": None}
    if "token_ids" in choice:
        first["token_ids"] = choice["token_ids"]
        head["prompt_token_ids"] = whole["prompt_token_ids"]
    yield {**head, "choices": [first]}
    reason = choice["finish_reason"]
    yield {**head, "choices": [{"index": 0, "delta": {}, "finish_reason": reason}]}
    if (body.get("stream_options") or {}).get("include_usage"):
        yield {**head, "choices": [], "usage": whole["usage"]}


def refusal(error: RefusedError) -> dict[str, Any]:
    """Return the body of an error."""
    kind = "invalid_request_error" if error.status < 500 else "server_error"
    # Some clients look for these words, and not at the code.
    what = f"context length exceeded: {error}" if error.code == TOO_LONG else str(error)
    return {"error": {"message": what, "type": kind, "param": None, "code": error.code}}


def _head(answer: Answer, body: Mapping[str, Any], kind: str) -> dict[str, Any]:
    # Nothing here depends on the clock, as code may draw on it.
    name = f"{len(answer.prompt_ids)}-{len(answer.token_ids)}"
    model = body.get("model") or "policy"
    return {"id": f"{kind}-{name}", "object": kind, "created": 0, "model": model}


def _said(answer: Answer) -> dict[str, Any]:
    given = answer.message
    message: dict[str, Any] = {"role": "assistant", "content": given.get("content") or ""}
    message |= {name: given[name] for name in KEPT if given.get(name)}
    if "thinking" in message:
        message["reasoning_content"] = message.pop("thinking")
    if answer.calls:
        message["content"] = message["content"] or None
        message["tool_calls"] = [
            {
                "id": call.call_id,
                "type": "function",
                "function": {"name": call.name, "arguments": json.dumps(call.arguments)},
            }
            for call in answer.calls
        ]
    return message


def _finish_reason(answer: Answer) -> str:
    if answer.finish_reason == "length":
        return "length"
    return "tool_calls" if answer.calls else "stop"


def _usage(answer: Answer) -> dict[str, int]:
    prompt, said = len(answer.prompt_ids), len(answer.token_ids)
    return {"prompt_tokens": prompt, "completion_tokens": said, "total_tokens": prompt + said}


def _logprobs(answer: Answer, body: Mapping[str, Any], chat: Chat) -> dict[str, Any]:
    tokens: Sequence[str] = [
        f"token_id:{each}" if body.get("return_tokens_as_token_ids") else chat.token_text(each)
        for each in answer.token_ids
    ]
    return {
        "content": [
            {
                "token": token,
                "logprob": logprob,
                "bytes": list(token.encode(errors="replace")),
                "top_logprobs": [],
            }
            for token, logprob in zip(tokens, answer.logprobs, strict=True)
        ],
        "refusal": None,
    }
