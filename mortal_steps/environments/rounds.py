"""The episodes of a shard while they are made, round by round.

A round samples one turn of each episode that goes on, as one batch in the order of the shard, then
has the calls of these turns answered, all at once. What an episode says depends on its seed, its
environment and the weights, and on the batches that it was part of: never on the clock.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from mortal_steps.environments.chat import Chat, TooLongError, Tools, calls_of, reply_to
from mortal_steps.environments.ledger import Ledger, batch_of, history_of
from mortal_steps.environments.messages import EpisodeKey, ToolAnswer, ToolCall
from mortal_steps.environments.processes.cell import Failed
from mortal_steps.errors import DataError, EngineError
from mortal_steps.rollout.engines.base import Engine, SampledTokens
from mortal_steps.schedule import derive_seed
from mortal_steps.types import (
    Completion,
    Episode,
    FinishReason,
    PolicyVersion,
    Problem,
    SamplingParams,
    Turn,
)


@dataclass(kw_only=True)
class Running:
    """An episode while it is sampled."""

    problem: Problem
    key: str
    """Key of the problem in the shard."""
    index: int
    """Number of the episode among the problem's."""
    seed: int
    tools: Tools
    replies: bool = False
    """Whether the environment answers messages that call nothing."""
    prompt: Sequence[Mapping[str, Any]]
    """Messages of the prompt, `reset`'s observation included."""
    prompt_ids: list[int] = field(default_factory=list)
    token_ids: list[int] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)
    turns: list[Turn] = field(default_factory=list)
    messages: list[Mapping[str, Any]] = field(default_factory=list)
    calls: list[ToolCall] = field(default_factory=list)
    """Calls of the last turn that have no answer yet."""
    finish_reason: FinishReason = "stop"
    stop: Any = "done"
    num_calls: int = 0
    num_failed_calls: int = 0
    failure: str | None = None
    difference: str | None = None
    """How an answer differs from the earlier answer to the same call, in words."""

    @property
    def episode(self) -> EpisodeKey:
        return self.key, self.index

    @property
    def name(self) -> str:
        """The episode's name in messages to people."""
        return f"{self.key}/{self.index}"

    @property
    def history(self) -> str:
        """Digest of the tokens that the episode has seen and said."""
        return history_of(self.seed, self.prompt_ids, self.token_ids)

    @property
    def goes_on(self) -> bool:
        return bool(self.calls) and self.failure is None

    def fail(self, reason: str, *, is_difference: bool = False) -> None:
        """End the episode without a score."""
        self.failure, self.stop, self.calls = reason, "failed", []
        if is_difference:
            self.difference = reason

    def forget_tokens(self, chat: Chat) -> None:
        """After a failure, leave as few tokens as there can be, none of which counts as sampled:
        the trainer pads all rows to the longest one, and this one has no part in training. What was
        said stays, to be read."""
        if not self.prompt_ids:  # nothing could be sampled after such a prompt
            self.prompt = self.problem.prompt  # type: ignore[assignment]
        if not self.prompt_ids or self.prompt is not self.problem.prompt:
            assert not isinstance(self.problem.prompt, str)
            self.prompt_ids = chat.prompt_ids(self.problem.prompt, self.own_tools)
        self.token_ids, self.logprobs = [chat.tokenizer.eos_token_id], [0.0]
        self.turns = [replace(turn, start=0, stop=0) for turn in self.turns]

    @property
    def own_tools(self) -> Tools:
        """Tools that are offered besides the problem's prompt."""
        return self.tools

    def add_turn(self, sampled: SampledTokens, round_number: int, room: int, chat: Chat) -> None:
        """Append a sampled turn, of which `room` tokens fit, and read its calls."""
        ids, reason = list(sampled.token_ids[:room]), sampled.finish_reason
        prefix = [*self.prompt_ids, *self.token_ids]
        self.calls = []
        if len(ids) < len(sampled.token_ids):
            reason = "length"
        if not ids:
            self.stop = "length"
            return
        start = len(self.token_ids)
        self.token_ids += ids
        self.logprobs += sampled.logprobs[:room]
        self.finish_reason = reason
        self.turns.append(
            Turn(
                start=start,
                stop=len(self.token_ids),
                seed=turn_seed(self.seed, round_number),
                finish_reason=reason,
                round=round_number,
            )
        )
        message = self.read(ids, prefix, chat)
        self.messages.append(message)
        key = f"{self.name}/{self.seed:x}"
        self.calls = calls_of(message, key, self.num_calls)
        if self.calls:
            return
        if reason == "length":
            self.stop = "length"
        elif self.replies:
            self.calls = [reply_to(message, key, len(self.turns))]

    def read(self, ids: Sequence[int], prefix: Sequence[int], chat: Chat) -> dict[str, Any]:
        """Return the message that was sampled after `prefix`."""
        return chat.read(ids, prefix, self.tools)

    def add_answers(
        self, answers: Sequence[ToolAnswer], chat: Chat, most: int, longest: int
    ) -> None:
        """Append the answers or the reply; without one, the episode ends, and with what the chat
        template cannot render it has failed. See `add_messages`."""
        if self.calls[0].is_reply:
            if answers[0].content is None:
                self.calls = []
                return
            messages = [{"role": "user", "content": answers[0].content}]
        else:
            self.num_calls += len(answers)
            self.num_failed_calls += sum(answer.is_error for answer in answers)
            messages = [
                {"role": "tool", "name": answer.name, "content": answer.content}
                for answer in answers
            ]
        room = min(most, longest - len(self.prompt_ids)) - len(self.token_ids)
        try:
            suffix = chat.suffix_ids(messages, self.token_ids[-1], room)
        except TooLongError:
            self.stop, self.calls = "length", []
        except DataError as error:  # it is as the environment answered
            self.fail(str(error))
        else:
            self.add_messages(messages, suffix, most, longest)

    def add_messages(
        self,
        messages: Sequence[Mapping[str, Any]],
        suffix: Sequence[int],
        most: int,
        longest: int,
    ) -> None:
        """Append what others say after the model's turn, and its tokens, unless the completion
        would exceed `most` tokens, or reach the `longest` that the model takes with its prompt:
        then the episode ends with the turn."""
        length = len(self.token_ids) + len(suffix)
        if length > most or len(self.prompt_ids) + length >= longest:
            self.stop, self.calls = "length", []
            return
        self.messages += messages
        self.token_ids += suffix
        self.logprobs += [0.0] * len(suffix)

    def completion(self, chat: Chat, version: PolicyVersion, scored: Episode) -> Completion:
        return Completion(
            token_ids=self.token_ids,
            logprobs=self.logprobs,
            text=chat.text_of(self.token_ids),
            finish_reason=self.finish_reason,
            seed=self.seed,
            policy_version=version,
            turns=tuple(self.turns),
            messages=tuple(self.messages),
            prompt=None if self.prompt == self.problem.prompt else self.prompt,
            differing_answer=self.difference,
            episode=replace(
                scored,
                stop=self.stop,
                num_calls=self.num_calls,
                num_failed_calls=self.num_failed_calls,
                failure=self.failure,
            ),
        )


def turn_seed(seed: int, number: int) -> int:
    """Return the seed of a turn of a completion; the first turn's is the completion's."""
    return seed if number == 0 else derive_seed("turn", seed, number)


def sample_turns(
    engine: Engine,
    running: Sequence[Running],
    params: SamplingParams,
    round_number: int,
    chat: Chat,
    ledger: Ledger | None = None,
) -> None:
    """Sample a turn of each episode, in one batch, or take it from the ledger."""
    room = [params.max_tokens - len(each.token_ids) for each in running]
    params = replace(params, max_tokens=max(1, *room))

    def sample() -> Sequence[SampledTokens]:
        return engine.sample(
            [[*each.prompt_ids, *each.token_ids] for each in running],
            [turn_seed(each.seed, round_number) for each in running],
            params,
        )

    if ledger is None:
        sampled = sample()
    else:
        batch = batch_of((each.history for each in running), round_number, params)
        sampled = ledger.sampled(batch, sample)
    for each, tokens, most in zip(running, sampled, room, strict=True):
        if not tokens.token_ids:
            raise EngineError(f"problem {each.problem.id!r}: the engine sampled no token")
        each.add_turn(tokens, round_number, most, chat)


def add_all_answers(
    running: Sequence[Running],
    answers: Mapping[EpisodeKey, Sequence[ToolAnswer] | Failed],
    chat: Chat,
    *,
    most: int,
    longest: int,
) -> None:
    """Give each episode the answers to its calls, or end it where its environment failed."""
    for each in running:
        answered = answers[each.episode]
        if isinstance(answered, Failed):
            each.fail(answered.reason, is_difference=answered.is_difference)
        else:
            each.add_answers(answered, chat, most, longest)
