"""A chat with tools as tokens: what is sampled is only ever appended to, never tokenized again.

    prompt      <user> What is 6 + 1? <assistant>      rendered once, with the tools' schemas
    sampled     add(6, 1) <eos>                        ids of the engine, read as a call
    suffix      <tool> 7 <assistant>                   rendered behind a made-up call, and cut there
    sampled     It is 7. <eos>

The templates and the reading of calls are those that TRL settled when the run began
(`ChatSettings`), so a worker without TRL does what GRPOTrainer does.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from mortal_steps.environments.messages import ToolCall
from mortal_steps.errors import DataError
from mortal_steps.rollout.episodes.single_turn import parse_response
from mortal_steps.types import ChatSettings

Message = Mapping[str, Any]
Tools = Sequence[Mapping[str, Any]]
"""JSON schemas of functions."""


class Chat:
    """Renders prompts and answers, and reads what the model said."""

    def __init__(
        self, tokenizer: Any, settings: ChatSettings, template_options: Mapping[str, Any]
    ) -> None:
        """`tokenizer` is transformers' of the model; it gets the run's response template."""
        self.tokenizer = tokenizer
        if settings.response_template is not None:
            tokenizer.response_template = dict(settings.response_template)
        self._options = {**template_options, "chat_template": settings.chat_template}
        if settings.date is not None:  # in place of transformers' function, which asks the clock
            self._options["strftime_now"] = datetime.fromisoformat(settings.date).strftime
        # A model makes up names of tools, too.
        self._start_of = functools.lru_cache(maxsize=1024)(self._rendered_start)

    def prompt_ids(self, messages: Sequence[Message], tools: Tools) -> list[int]:
        """Return the ids of a prompt that offers the tools; raise `DataError` if the template
        cannot render it."""
        try:
            return self._render(messages, tools=list(tools) or None, add_generation_prompt=True)
        except Exception as error:
            raise DataError(
                f"the chat template raises {type(error).__name__} for the prompt: {error}"
            ) from error

    def suffix_ids(self, answers: Sequence[Message]) -> list[int]:
        """Return the ids of tools' answers, as they follow the end of the model's turn, up to
        where the model goes on.

        A turn is closed by the end-of-sequence token, which the model has sampled itself: what a
        template renders before it and up to it is left out. The made-up call that the answers
        follow has the name of the first one's tool, as some templates name the answer by it.
        Raises `DataError` where the template cannot render that.
        """
        name = answers[0]["name"]
        try:
            start = self._start_of(name)
            whole = self._render([*_made_up_call(name), *answers], add_generation_prompt=True)
        except Exception as error:
            raise DataError(
                f"the chat template raises {type(error).__name__} for an answer of {name!r}: "
                f"{error}"
            ) from error
        if whole[: len(start)] != start:
            raise DataError(
                "the chat template renders a call in another way once it is answered, so answers "
                "cannot be appended to what was sampled; use a template that keeps its prefix"
            )
        return whole[len(start) :]

    def _rendered_start(self, name: str) -> list[int]:
        """Return the ids of a call of the tool up to the end of its turn."""
        start = self._render(_made_up_call(name), add_generation_prompt=False)
        end = self.tokenizer.eos_token_id
        return start[: len(start) - start[::-1].index(end)] if end in start else start

    def read(self, token_ids: Sequence[int], prefix: Sequence[int], tools: Tools) -> dict[str, Any]:
        """Return the message that the model said after `prefix`; text that is no valid call is the
        message's content."""
        return parse_response(self.tokenizer, token_ids, prefix, tools)

    def text_of(self, token_ids: Sequence[int]) -> str:
        """Return the tokens as text, without special tokens."""
        return str(self.tokenizer.decode(list(token_ids), skip_special_tokens=True))

    def _render(self, messages: Sequence[Message], **options: Any) -> list[int]:
        rendered = self.tokenizer.apply_chat_template(
            [[dict(message) for message in messages]],
            tokenize=True,
            return_dict=True,
            **options,
            **self._options,
        )
        (ids,) = rendered["input_ids"]
        return list(ids)


def _made_up_call(name: str) -> list[Message]:
    """Return a dialogue that ends with a call of the tool."""
    called = {"type": "function", "function": {"name": name, "arguments": {}}}
    return [
        {"role": "user", "content": "dummy"},
        {"role": "assistant", "content": "", "tool_calls": [called]},
    ]


def calls_of(message: Message, key: str, first: int) -> list[ToolCall]:
    """Return the calls in the model's message; `key` and the number of the `first` one make their
    ids."""
    calls = []
    for number, call in enumerate(message.get("tool_calls") or (), first):
        kind, called = call.get("type"), call.get("function", call)
        wrong = None if kind == "function" else f"Unsupported tool call type: {kind}"
        name = called["name"] if wrong is None else call.get("name", "unknown")
        calls.append(
            ToolCall(
                name=name,
                arguments=called.get("arguments", {}),
                call_id=f"{key}/{number}",
                error=wrong,
            )
        )
    return calls
