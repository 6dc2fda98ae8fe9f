"""A chat with tools as tokens: what is sampled is only ever appended to, never tokenized again.

    prompt      <user> What is 6 + 1? <assistant>      rendered once, with the tools' schemas
    sampled     add(6, 1) <eos>                        ids of the engine, read as a call
    suffix      <tool> 7 <assistant>                   rendered behind a made-up call, and cut there
    sampled     It is 7. <eos>

The templates and the reading of calls are those that TRL settled when the run began
(`ChatSettings`), so a worker without TRL does what GRPOTrainer does.
"""

import functools
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from mortal_steps.environments.messages import REPLY, ToolCall
from mortal_steps.errors import DataError
from mortal_steps.rollout.episodes.single_turn import parse_response
from mortal_steps.rollout.template_clock import template_clock
from mortal_steps.types import ChatSettings

Message = Mapping[str, Any]
Tools = Sequence[Mapping[str, Any]]
"""JSON schemas of functions."""
LONG_TOKEN = 8
"""Characters of a long token: few texts have more for each token."""
LEAST_ROOM = 64
"""Fewest tokens of room for which the length of a text is looked at."""


class TooLongError(Exception):
    """A text has so many more tokens than there is room for that they are not all made."""


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
        date = settings.date
        self._clock = None if date is None else datetime.fromisoformat(date).strftime
        # The names are those of tools, and what a model makes up.
        self._made_up = functools.lru_cache(maxsize=1024)(self._rendered)

    @property
    def options(self) -> Mapping[str, Any]:
        """Arguments of the chat template besides messages and tools."""
        return self._options

    @property
    def num_ids(self) -> int:
        return len(self.tokenizer)

    def prompt_ids(
        self, messages: Sequence[Message], tools: Tools, room: int | None = None
    ) -> list[int]:
        """Return a prompt's ids with the tools. Raises `DataError` for a prompt that cannot be
        rendered, and `TooLongError` for one whose text shows that it needs far more than `room`
        tokens."""
        options = {"tools": list(tools) or None, "add_generation_prompt": True}
        try:
            return self._render(messages, room, **options)
        except TooLongError:
            raise
        except Exception as error:
            raise DataError(
                f"the chat template raises {type(error).__name__} for the prompt: {error}"
            ) from error

    def suffix_ids(
        self, messages: Sequence[Message], last_id: int, room: int | None = None
    ) -> list[int]:
        """Return the ids of what others say after the model's turn, which ended with `last_id`, up
        to where the model goes on: tools' answers, or messages of the user or the system.

        A turn is closed by a token that the model has sampled itself: what a template renders
        before it and up to it is left out. For tools' answers, that token is the end of a sequence,
        as in TRL, and they follow a made-up call, which has the name of the first one's tool, as
        some templates name the answer by it. Raises `DataError` where the template cannot render
        that, and `TooLongError` where far more than `room` ids are seen to come.
        """
        first, end = messages[0], last_id
        if first["role"] == "tool":
            end = self.tokenizer.eos_token_id
        try:
            before, start = self._made_up(first["name"] if first["role"] == "tool" else None)
            most = None if room is None else len(start) + room
            whole = self._render([*before, *messages], most, add_generation_prompt=True)
        except TooLongError:
            raise
        except Exception as error:
            raise DataError(
                f"the chat template raises {type(error).__name__} for {_named(first)}: {error}"
            ) from error
        kept = len(start)
        if first["role"] != "tool" and whole[kept : kept + 1] == [end]:
            kept += 1  # a turn that ends with what begins the next one
        elif end in start:
            kept -= start[::-1].index(end)
        if whole[: min(kept, len(start))] != start[:kept]:
            raise DataError(
                "the chat template renders what the model said in another way once "
                f"{_named(first)} follows, so nothing can be appended to what was sampled; use a "
                "template that keeps its prefix"
            )
        return whole[kept:]

    def _rendered(self, called: str | None) -> tuple[list[Message], list[int]]:
        """Return a made-up dialogue that ends with a tool call or text, and its ids."""
        said: Message = {"role": "assistant", "content": "dummy"}
        if called is not None:
            call = {"type": "function", "function": {"name": called, "arguments": {}}}
            said = {"role": "assistant", "content": "", "tool_calls": [call]}
        dialogue: list[Message] = [{"role": "user", "content": "dummy"}, said]
        return dialogue, self._render(dialogue, None, add_generation_prompt=False)

    def read(self, token_ids: Sequence[int], prefix: Sequence[int], tools: Tools) -> dict[str, Any]:
        """Return the message said after `prefix`; what is no valid call is its content."""
        return parse_response(self.tokenizer, token_ids, prefix, tools)

    def text_of(self, token_ids: Sequence[int]) -> str:
        """Return the tokens as text, without special tokens."""
        return str(self.tokenizer.decode(list(token_ids), skip_special_tokens=True))

    def text_ids(self, text: str, *, begins: bool, room: int | None = None) -> list[int]:
        """Return a plain text's ids, with a beginning's special tokens if the text `begins`. Raises
        `TooLongError` for a text that needs far more than `room` tokens."""
        if room is not None:
            self._check_room(text, room)
        return list(self.tokenizer(text, add_special_tokens=begins)["input_ids"])

    def token_text(self, token_id: int) -> str:
        return str(self.tokenizer.decode([token_id]))

    def _render(self, messages: Sequence[Message], room: int | None, **options: Any) -> list[int]:
        given = [[dict(message) for message in messages]]
        options |= self._options
        with template_clock(self._clock):
            if room is not None and _characters(messages) > _beginning(room):
                (text,) = self.tokenizer.apply_chat_template(given, tokenize=False, **options)
                self._check_room(text, room)
            rendered = self.tokenizer.apply_chat_template(
                given, tokenize=True, return_dict=True, **options
            )
        (ids,) = rendered["input_ids"]
        return list(ids)

    def _check_room(self, text: str, room: int) -> None:
        """Raise `TooLongError` for a text whose beginning has twice as many tokens as have room:
        to make all those of a long text takes minutes, and gigabytes. Twice, because the last ones
        before the cut are not those of the whole text."""
        length = _beginning(room)
        while length < len(text):
            found = self.tokenizer(text[:length], add_special_tokens=False)["input_ids"]
            if len(found) > 2 * max(room, LEAST_ROOM):
                raise TooLongError(f"more than {room} tokens in {len(text)} characters")
            length *= 4


def _beginning(room: int) -> int:
    """Return how many characters hold twice as many tokens as have room, as a rule."""
    return LONG_TOKEN * 2 * max(room, LEAST_ROOM)


def _characters(messages: Sequence[Message]) -> int:
    """Return how long the messages' texts are, at least."""
    contents = [message.get("content") for message in messages]
    return sum(len(each if isinstance(each, str) else str(each)) for each in contents)


def _named(message: Message) -> str:
    """Return words for a message that others said."""
    role = message["role"]
    return f"an answer of {message['name']!r}" if role == "tool" else f"a message of the {role}"


def reply_to(message: Message, key: str, number: int) -> ToolCall:
    """Return the call that stands for a plain text, which an environment's `_reply` answers; `key`
    and `number` make its id."""
    said = {"text": str(message.get("content") or "")}
    return ToolCall(name=REPLY, arguments=said, call_id=f"{key}/said/{number}", is_reply=True)


def calls_of(message: Message, key: str, first: int) -> list[ToolCall]:
    """Return the message's calls; `key` and the `first` number make their ids."""
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
