"""The bodies of requests and answers as OpenAI's clients know them, with what vLLM adds to them.

Each dialect is a class: what a request asks for, the answer to it, and the answer in parts.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, ClassVar

from mortal_steps.rollout.http.messages import (
    Answer,
    Asked,
    RefusedError,
    known_as,
    template_message,
)

Body = Mapping[str, Any]
TokenText = Callable[[int], str]
"""Returns a token's text."""


class Dialect(ABC):
    """A way to ask for what the model says."""

    path: ClassVar[str]

    @abstractmethod
    def parse(self, body: Body) -> Asked:
        """Return what a request asks for; raise `RefusedError`."""

    @abstractmethod
    def render(self, answers: Sequence[Answer], body: Body, token_text: TokenText) -> Body:
        """Return the body of one or several answers to the same request."""

    def chunks(self, whole: Body, body: Body) -> Iterator[Body]:
        """Yield what `render` returned in the parts that a stream has."""
        yield whole


class ChatCompletions(Dialect):
    """Messages in, a message out."""

    path = "/v1/chat/completions"

    def parse(self, body: Body) -> Asked:
        given = body.get("messages")
        if not isinstance(given, list) or not given:
            raise RefusedError("`messages` is no list of messages")
        tools = body.get("tools") or ()
        if not isinstance(tools, list | tuple) or not all(isinstance(e, Mapping) for e in tools):
            raise RefusedError(f"`tools` = {str(tools)[:80]} is no list of tools")
        if not isinstance(body.get("stream_options") or {}, Mapping):
            raise RefusedError(f"`stream_options` = {body['stream_options']!r:.80} is no object")
        names: dict[Any, str] = {}
        messages = [template_message(each, names) for each in given]
        return Asked(messages=messages, tools=tools, known_as=[known_as(each) for each in messages])

    def render(self, answers: Sequence[Answer], body: Body, token_text: TokenText) -> Body:
        found = {**_head(answers, body, "chat.completion"), "choices": []}
        for index, answer in enumerate(answers):
            choice: dict[str, Any] = {
                "index": index,
                "message": answer.message,
                "logprobs": _logprobs(answer, body, token_text) if body.get("logprobs") else None,
                "finish_reason": _finish_reason(answer),
            }
            if body.get("return_token_ids"):
                choice["token_ids"] = list(answer.token_ids)
                found["prompt_token_ids"] = list(answer.prompt_ids)
            found["choices"].append(choice)
        return found

    def chunks(self, whole: Body, body: Body) -> Iterator[Body]:
        head = {name: value for name, value in whole.items() if name not in ("choices", "usage")}
        head["object"] = "chat.completion.chunk"
        for choice in whole["choices"]:
            message = dict(choice["message"])
            if "tool_calls" in message:
                calls = enumerate(message["tool_calls"])
                message["tool_calls"] = [{"index": number, **call} for number, call in calls]
            said = {name: value for name, value in choice.items() if name != "message"}
            yield {**head, "choices": [{**said, "delta": message, "finish_reason": None}]}
            ending = {"delta": {}, "finish_reason": choice["finish_reason"]}
            yield {**head, "choices": [{"index": choice["index"], **ending}]}
        if (body.get("stream_options") or {}).get("include_usage"):
            yield {**head, "choices": [], "usage": whole["usage"]}


class Completions(Dialect):
    """A text in, or its tokens, and a text out."""

    path = "/v1/completions"

    def parse(self, body: Body) -> Asked:
        prompt = body.get("prompt")
        if isinstance(prompt, list) and len(prompt) == 1 and not isinstance(prompt[0], int):
            (prompt,) = prompt
        return _prompt(prompt)

    def render(self, answers: Sequence[Answer], body: Body, token_text: TokenText) -> Body:
        choices = [
            self._choice(index, answer, body, token_text) for index, answer in enumerate(answers)
        ]
        return {**_head(answers, body, "text_completion"), "choices": choices}

    def _choice(
        self, index: int, answer: Answer, body: Body, token_text: TokenText
    ) -> dict[str, Any]:
        choice: dict[str, Any] = {
            "index": index,
            "text": answer.text,
            "logprobs": None,
            "finish_reason": answer.finish_reason,
        }
        if body.get("logprobs") is not None:
            given = _logprobs(answer, body, token_text)["content"]
            choice["logprobs"] = {
                "tokens": [each["token"] for each in given],
                "token_logprobs": list(answer.logprobs),
                "top_logprobs": None,
                "text_offset": [],
            }
        if body.get("return_token_ids"):
            choice["token_ids"] = list(answer.token_ids)
            choice["prompt_token_ids"] = list(answer.prompt_ids)
        return choice


class SeveralCompletions(Completions):
    """Several texts in, or their tokens, and a text out for each."""

    def parse(self, body: Body) -> Asked:
        prompts = body.get("prompt")
        if not isinstance(prompts, list) or not prompts or isinstance(prompts[0], int):
            return super().parse(body)
        return Asked(several=[_prompt(each) for each in prompts])


class InferenceGenerate(Dialect):
    """Tokens in, tokens out, as vLLM has it."""

    path = "/inference/v1/generate"

    def parse(self, body: Body) -> Asked:
        return Asked(ids=_ids("token_ids", body.get("token_ids")))

    def render(self, answers: Sequence[Answer], body: Body, token_text: TokenText) -> Body:
        by_id = {"return_tokens_as_token_ids": True}
        choices = [
            {
                "index": index,
                "logprobs": _logprobs(answer, by_id, token_text),
                "finish_reason": answer.finish_reason,
                "token_ids": list(answer.token_ids),
            }
            for index, answer in enumerate(answers)
        ]
        head = _head(answers, body, "generate")
        prompt_ids = list(answers[0].prompt_ids)
        return {
            "request_id": body.get("request_id") or head["id"],
            "model": head["model"],
            "created": head["created"],
            "choices": choices,
            "usage": head["usage"],
            "prompt_logprobs": None,
            "prompt_token_ids": prompt_ids if body.get("return_token_ids") else None,
        }


class Generate(Dialect):
    """A text or its tokens in, texts and tokens out, as vLLM's first server has it."""

    path = "/generate"

    def parse(self, body: Body) -> Asked:
        if body.get("prompt_logprobs") is not None:
            raise RefusedError("prompt_logprobs are not computed here")
        prompt = body.get("prompt")
        return _prompt(prompt.get("prompt_token_ids") if isinstance(prompt, Mapping) else prompt)

    def render(self, answers: Sequence[Answer], body: Body, token_text: TokenText) -> Body:
        prompt = body["prompt"]
        return {
            "prompt": None if isinstance(prompt, Mapping) else prompt,
            "text": [each.text for each in answers],
            "finish_reasons": [each.finish_reason for each in answers],
            "token_ids": [list(each.token_ids) for each in answers],
            "logprobs": [
                [[{token: lp}] for token, lp in zip(each.token_ids, each.logprobs, strict=True)]
                for each in answers
            ],
            "prompt_token_ids": list(answers[0].prompt_ids),
            "weight_version": answers[0].version,
        }


def _prompt(prompt: Any) -> Asked:
    if isinstance(prompt, str) and prompt:
        return Asked(text=prompt)
    return Asked(ids=_ids("prompt", prompt))


def _ids(name: str, given: Any) -> Sequence[int]:
    # True and False are numbers to Python.
    if isinstance(given, list) and given and all(type(each) is int for each in given):
        return given
    raise RefusedError(f"`{name}` is neither text nor a list of token ids")


def _head(answers: Sequence[Answer], body: Body, kind: str) -> dict[str, Any]:
    # Nothing here depends on the clock, as code may draw on it.
    prompt, said = len(answers[0].prompt_ids), sum(len(each.token_ids) for each in answers)
    return {
        "id": f"{kind}-{answers[0].name}",
        "object": kind,
        "created": 0,
        "model": body.get("model") or "policy",
        "usage": {
            "prompt_tokens": prompt,
            "completion_tokens": said,
            "total_tokens": prompt + said,
        },
    }


def _finish_reason(answer: Answer) -> str:
    if answer.finish_reason == "length":
        return "length"
    return "tool_calls" if "tool_calls" in answer.message else "stop"


def _logprobs(answer: Answer, body: Body, token_text: TokenText) -> dict[str, Any]:
    tokens: Sequence[str] = [
        f"token_id:{each}" if body.get("return_tokens_as_token_ids") else token_text(each)
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
