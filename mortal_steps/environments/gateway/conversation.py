"""An episode that is asked for in messages, and kept in tokens.

A client sends the whole dialogue with each request. What was sampled is never tokenized again: the
messages are compared with those that were said, and only what is new is rendered and appended.

    asked     user: hi                                   prompt_ids  rendered once
    answered  assistant: hello                           token_ids   sampled
    asked     user: hi, assistant: hello, user: and now?             + the new message's
    asked     user: hi, assistant: HELLO, user: and now?   a branch: rendered anew, as a new prompt
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from mortal_steps.environments.chat import Chat, Message, TooLongError, Tools
from mortal_steps.environments.messages import ToolCall
from mortal_steps.environments.rounds import Running
from mortal_steps.errors import DataError
from mortal_steps.rollout.http.messages import (
    KEPT,
    TOO_LONG,
    Answer,
    Asked,
    RefusedError,
    known_as,
)
from mortal_steps.types import Problem


class Branch(Running):
    """The tokens since the dialogue was begun, or since a client rewrote it."""

    def read(self, ids: Sequence[int], prefix: Sequence[int], chat: Chat) -> dict[str, Any]:
        message = super().read(ids, prefix, chat)
        if self.tools or "tool_calls" not in message:
            return message
        return {"role": "assistant", "content": chat.text_of(ids)}

    @property
    def own_tools(self) -> Tools:
        return ()  # `tools` are those of a request


@dataclass(kw_only=True)
class Conversation:
    """The dialogue of an episode: what it is asked, and what was sampled."""

    problem: Problem
    key: str
    """Key of the problem in the shard."""
    index: int
    """Number of the episode among the problem's."""
    seed: int
    chat: Chat
    most_tokens: int
    """Most tokens of a completion, those that others said included."""
    longest: int
    """Most tokens of prompt and completion that the model takes."""
    most_turns: int | None
    running: Branch = field(init=False)
    num_turns: int = 0
    num_branches: int = 0
    """Times that a client rewrote what was said before."""
    asked: tuple[str, str] = ("", "")
    """The last request: digest of the tokens before it, and the new messages as JSON."""
    difference: str | None = None
    """How a request differs from the one before a kill, in words."""
    _said: list[str] = field(default_factory=list)
    """The messages so far, without what clients are known to change."""
    _text: str | None = None
    """The text so far as the client has it, where the client asks with texts."""

    def __post_init__(self) -> None:
        self.running = self._branch([], ())

    def take(self, asked: Asked) -> None:
        """Append what is asked, so that the next turn can be sampled.

        Raises `RefusedError` where there is no room for a turn, and `DataError` for messages that
        the chat template cannot render.
        """
        if self.most_turns is not None and self.num_turns >= self.most_turns:
            raise RefusedError(
                f"the episode has had {self.num_turns} turns, and "
                f"environment.max_tool_calling_iterations = {self.most_turns - 1}",
                code=TOO_LONG,
                stop="max_iterations",
            )
        before, count = self.running.history, len(self._said)
        try:
            new = self._new(asked) if self.running.turns else None
        except TooLongError:
            raise self._without_room() from None
        if new is not None and new[1]:
            self._extend(*new)
        else:
            self._begin(asked)
            count = 0
        self.asked = before, json.dumps([*asked.known_as[count:], asked.text, *(asked.ids or ())])
        self._said, self._text = list(asked.known_as), asked.text

    def answer(self) -> Answer:
        """Return the turn that was sampled last."""
        running, turn = self.running, self.running.turns[-1]
        message, ids = running.messages[-1], running.token_ids[turn.start : turn.stop]
        text = self.chat.text_of(ids)
        self.num_turns += 1
        self._said.append(known_as(message))
        self._text = None if self._text is None else self._text + text
        prompt_ids = [*running.prompt_ids, *running.token_ids[: turn.start]]
        return Answer(
            name=f"{len(prompt_ids)}-{len(ids)}",
            message=_in_wire_format(message, running.calls),
            prompt_ids=prompt_ids,
            token_ids=ids,
            logprobs=running.logprobs[turn.start : turn.stop],
            text=text,
            finish_reason=turn.finish_reason,
        )

    def _new(self, asked: Asked) -> tuple[Sequence[Message], Sequence[int]] | None:
        """Return the messages that follow the model's last turn, and their tokens; None where the
        request does not go on from that turn."""
        running = self.running
        if asked.ids is not None:
            kept = [*running.prompt_ids, *running.token_ids]
            ids = asked.ids[len(kept) :]
            return (self._said_by_user(ids), ids) if [*kept, *ids] == list(asked.ids) else None
        if asked.text is not None:
            if self._text is None or not asked.text.startswith(self._text):
                return None
            new_text = asked.text[len(self._text) :]
            ids = self.chat.text_ids(new_text, begins=False, room=self._room)
            return self._said_by_user(ids), ids
        count = len(self._said)
        new = asked.messages[count:]
        if (
            list(asked.known_as[:count]) != self._said
            or list(asked.tools) != list(running.tools)
            or any(each["role"] == "assistant" for each in new)
        ):
            return None
        if not new:
            return None
        return new, self.chat.suffix_ids(new, running.token_ids[-1], self._room)

    @property
    def _room(self) -> int:
        """Number of tokens that may follow the model's last turn."""
        running = self.running
        most = min(self.most_tokens, self.longest - len(running.prompt_ids))
        return most - len(running.token_ids)

    def _begin(self, asked: Asked) -> None:
        """Take the whole dialogue as a prompt."""
        prompt, ids, room = asked.messages, asked.ids, self.longest - self.most_tokens
        try:
            if asked.text is not None:
                ids = self.chat.text_ids(asked.text, begins=True, room=room)
            if ids is None:
                ids = self.chat.prompt_ids(prompt, asked.tools, room)
        except TooLongError:
            raise self._unfit(f"more than {room}") from None
        if len(ids) > room:
            raise self._unfit(str(len(ids)))
        if asked.text is not None or asked.ids is not None:
            prompt = self._said_by_user(ids)
        self.num_branches += self.num_turns > 0
        self.running = self._branch(prompt, asked.tools)
        self.running.prompt_ids = list(ids)

    def _extend(self, new: Sequence[Message], ids: Sequence[int]) -> None:
        running = self.running
        running.stop = "done"  # a longer request may have been refused before
        running.add_messages(new, ids, self.most_tokens - 1, self.longest)
        if running.stop == "length":
            raise self._without_room()
        running.num_calls += sum(each["role"] == "tool" for each in new)

    def _unfit(self, length: str) -> Exception:
        """Return the error for a prompt of this many tokens."""
        wrong = (
            f"{length} tokens of a prompt and {self.most_tokens} of a completion "
            f"(rollout.max_tokens) do not fit the model's {self.longest}"
        )
        if not self.num_turns:
            return DataError(f"{wrong}; shorten it, or set a lower rollout.max_tokens")
        return RefusedError(wrong, code=TOO_LONG, stop="length")

    def _without_room(self) -> RefusedError:
        return RefusedError(
            f"{len(self.running.token_ids)} tokens were said, and with what follows there is no "
            f"room for more: rollout.max_tokens = {self.most_tokens}",
            code=TOO_LONG,
            stop="length",
        )

    def _said_by_user(self, ids: Sequence[int]) -> Sequence[Message]:
        return [{"role": "user", "content": self.chat.text_of(ids)}]

    def _branch(self, prompt: Sequence[Message], tools: Tools) -> Branch:
        return Branch(
            problem=self.problem,
            key=self.key,
            index=self.index,
            seed=self.seed,
            tools=tools,
            prompt=prompt,
        )


def _in_wire_format(message: Message, calls: Sequence[ToolCall]) -> Message:
    """Return what the model said as OpenAI has it."""
    found: dict[str, Any] = {"role": "assistant", "content": message.get("content") or ""}
    found |= {name: message[name] for name in KEPT if message.get(name)}
    if "thinking" in found:
        found["reasoning_content"] = found.pop("thinking")
    if calls:
        found["content"] = found["content"] or None
        found["tool_calls"] = [
            {
                "id": call.call_id,
                "type": "function",
                "function": {"name": call.name, "arguments": json.dumps(call.arguments)},
            }
            for call in calls
        ]
    return found
