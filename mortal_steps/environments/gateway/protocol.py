"""Requests and answers as OpenAI's clients know them, with what vLLM adds to them.

Each way to ask is a class: what a request asks for, the answer to it, and the answer in parts.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Protocol

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
ROLES = frozenset(("system", "developer", "user", "assistant", "tool"))
"""Those of OpenAI's protocol."""


Body = Mapping[str, Any]


class Way(Protocol):
    """A way to ask for what the model says."""

    path: str
    """Of its endpoint, below an episode's address."""

    def asked_in(self, body: Body) -> Asked:
        """Return what a request asks for; raise `RefusedError`."""
        ...

    def answered(self, answer: Answer, body: Body, chat: Chat) -> dict[str, Any]:
        """Return the body of the answer."""
        ...

    def chunks(self, whole: Body, body: Body) -> Iterator[Body]:
        """Yield the answer in the parts that a stream has."""
        ...


class ChatCompletions:
    """Messages in, a message out."""

    path = "/v1/chat/completions"

    def asked_in(self, body: Body) -> Asked:
        given = body.get("messages")
        if not isinstance(given, list) or not given:
            raise RefusedError("`messages` is no list of messages")
        _check_one(body)
        tools = body.get("tools") or ()
        if not isinstance(tools, list | tuple) or not all(isinstance(e, Mapping) for e in tools):
            raise RefusedError(f"`tools` = {str(tools)[:80]} is no list of tools")
        if not isinstance(body.get("stream_options") or {}, Mapping):
            raise RefusedError(f"`stream_options` = {body['stream_options']!r:.80} is no object")
        names: dict[Any, str] = {}
        messages = [_message(each, names) for each in given]
        return Asked(
            messages=messages,
            tools=tools,
            known_as=[known_as(each) for each in messages],
        )

    def answered(self, answer: Answer, body: Body, chat: Chat) -> dict[str, Any]:
        choice: dict[str, Any] = {
            "index": 0,
            "message": _said(answer),
            "logprobs": _logprobs(answer, body, chat) if body.get("logprobs") else None,
            "finish_reason": _finish_reason(answer),
        }
        found = {**_head(answer, body, "chat.completion"), "choices": [choice]}
        if body.get("return_token_ids"):
            choice["token_ids"] = list(answer.token_ids)
            found["prompt_token_ids"] = list(answer.prompt_ids)
        return found

    def chunks(self, whole: Body, body: Body) -> Iterator[Body]:
        (choice,) = whole["choices"]
        message = dict(choice["message"])
        if "tool_calls" in message:
            calls = enumerate(message["tool_calls"])
            message["tool_calls"] = [{"index": number, **call} for number, call in calls]
        said = {name: value for name, value in choice.items() if name != "message"}
        head = {name: value for name, value in whole.items() if name not in ("choices", "usage")}
        head["object"] = "chat.completion.chunk"
        yield {**head, "choices": [{**said, "delta": message, "finish_reason": None}]}
        ending = {"index": 0, "delta": {}, "finish_reason": choice["finish_reason"]}
        yield {**head, "choices": [ending]}
        if (body.get("stream_options") or {}).get("include_usage"):
            yield {**head, "choices": [], "usage": whole["usage"]}


class Completions:
    """A text in, or its tokens, and a text out."""

    path = "/v1/completions"

    def asked_in(self, body: Body) -> Asked:
        _check_one(body)
        prompt = body.get("prompt")
        if isinstance(prompt, list) and len(prompt) == 1 and not isinstance(prompt[0], int):
            (prompt,) = prompt
        if isinstance(prompt, str) and prompt:
            return Asked(text=prompt)
        return Asked(ids=_ids("prompt", prompt))

    def answered(self, answer: Answer, body: Body, chat: Chat) -> dict[str, Any]:
        choice: dict[str, Any] = {
            "index": 0,
            "text": answer.text,
            "logprobs": None,
            "finish_reason": answer.finish_reason,
        }
        if body.get("logprobs") is not None:
            given = _logprobs(answer, body, chat)["content"]
            choice["logprobs"] = {
                "tokens": [each["token"] for each in given],
                "token_logprobs": list(answer.logprobs),
                "top_logprobs": None,
                "text_offset": [],
            }
        if body.get("return_token_ids"):
            choice["token_ids"] = list(answer.token_ids)
            choice["prompt_token_ids"] = list(answer.prompt_ids)
        return {**_head(answer, body, "text_completion"), "choices": [choice]}

    def chunks(self, whole: Body, body: Body) -> Iterator[Body]:
        yield whole


class Generate:
    """Tokens in, tokens out, as vLLM has it."""

    path = "/inference/v1/generate"

    def asked_in(self, body: Body) -> Asked:
        sampling = body.get("sampling_params") or {}
        _check_one(sampling)
        return Asked(ids=_ids("token_ids", body.get("token_ids")))

    def answered(self, answer: Answer, body: Body, chat: Chat) -> dict[str, Any]:
        by_id = {"return_tokens_as_token_ids": True}
        choice = {
            "index": 0,
            "logprobs": _logprobs(answer, by_id, chat),
            "finish_reason": answer.finish_reason,
            "token_ids": list(answer.token_ids),
        }
        head = _head(answer, body, "generate")
        return {
            "request_id": body.get("request_id") or head["id"],
            "model": head["model"],
            "created": head["created"],
            "choices": [choice],
            "usage": head["usage"],
            "prompt_logprobs": None,
            "prompt_token_ids": list(answer.prompt_ids) if body.get("return_token_ids") else None,
        }

    def chunks(self, whole: Body, body: Body) -> Iterator[Body]:
        yield whole


WAYS: Sequence[Way] = (ChatCompletions(), Completions(), Generate())


def _check_one(body: Body) -> None:
    for name in ("n", "best_of"):
        if body.get(name) not in (None, 1):
            raise RefusedError(
                f"{name} = {body[name]}: a dialogue goes on with one answer; "
                "training.num_generations says how many episodes a problem has"
            )


def _ids(name: str, given: Any) -> Sequence[int]:
    # True and False are numbers to Python.
    if isinstance(given, list) and given and all(type(each) is int for each in given):
        return given
    raise RefusedError(f"`{name}` is neither text nor a list of token ids")


def _message(given: Any, names: dict[Any, str]) -> Message:
    """Return a message as chat templates take it; `names` of tools are known by the ids of
    calls."""
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


def refusal(error: RefusedError) -> dict[str, Any]:
    """Return the body of an error."""
    kind = "invalid_request_error" if error.status < 500 else "server_error"
    # Some clients look for these words, and not at the code.
    what = f"context length exceeded: {error}" if error.code == TOO_LONG else str(error)
    return {"error": {"message": what, "type": kind, "param": None, "code": error.code}}


def _head(answer: Answer, body: Body, kind: str) -> dict[str, Any]:
    # Nothing here depends on the clock, as code may draw on it.
    name = f"{len(answer.prompt_ids)}-{len(answer.token_ids)}"
    model = body.get("model") or "policy"
    return {
        "id": f"{kind}-{name}",
        "object": kind,
        "created": 0,
        "model": model,
        "usage": _usage(answer),
    }


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


def _logprobs(answer: Answer, body: Body, chat: Chat) -> dict[str, Any]:
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
