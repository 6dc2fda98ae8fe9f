"""The addresses of episodes: a server whose callers are sessions."""

import asyncio
import contextlib
import logging
import secrets
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NoReturn

from starlette.requests import Request

from mortal_steps.environments.chat import Chat
from mortal_steps.environments.gateway.session import EpisodeSession
from mortal_steps.rollout.http.dialects import (
    Body,
    ChatCompletions,
    Completions,
    InferenceGenerate,
)
from mortal_steps.rollout.http.messages import ROLES, Answer, Asked, RefusedError
from mortal_steps.rollout.http.server import HOST, Server

logger = logging.getLogger(__name__)

# fmt: off
IGNORED_FIELDS = frozenset((
    "tool_choice", "response_format", "stop", "stop_token_ids", "guided_json",
    "guided_regex", "guided_choice", "guided_grammar", "structured_outputs", "functions",
    "function_call", "logit_bias", "allowed_token_ids", "bad_words", "min_tokens",
    "ignore_eos", "top_logprobs", "prompt_logprobs", "truncate_prompt_tokens", "echo",
    "suffix", "chat_template", "documents", "continue_final_message",
    "add_generation_prompt", "parallel_tool_calls", "modalities", "prediction",
))
# fmt: on
"""Fields of a request that no answer follows, besides those of sampling, which are always the
run's."""
NEUTRAL_VALUES: tuple[Any, ...] = ("auto", "none", {"type": "text"}, ["text"], [], {}, "", 0)
TRUE_BY_DEFAULT = ("add_generation_prompt", "parallel_tool_calls")
"""Fields that matter only where they are `false`."""


class EpisodeServer(Server):
    """Answers at an address for each episode; a caller is an attempt of a session."""

    def __init__(self, chat: Chat) -> None:
        self._chat = chat
        self._sessions: dict[str, tuple[EpisodeSession, int]] = {}
        self._warned: set[str] = set()
        super().__init__(
            (ChatCompletions(), Completions(), InferenceGenerate()),
            ports=(0,),
            prefix="/e/{episode}",
            num_ids=chat.num_ids,
            token_text=chat.token_text,
        )

    @contextlib.contextmanager
    def address_of(self, session: EpisodeSession, reach: Callable[[int], int]) -> Iterator[str]:
        """Yield an address at which this attempt of the session asks, until the block ends; see
        `Fork.reach`."""
        episode = secrets.token_hex(16)
        self._sessions[episode] = session, session.attempt
        try:
            yield f"http://{HOST}:{reach(self.port)}/e/{episode}/v1"
        finally:
            del self._sessions[episode]

    def _caller(self, request: Request) -> tuple[EpisodeSession, int]:
        found = self._sessions.get(request.path_params["episode"])
        if found is None:
            raise RefusedError("no such episode is played", code="not_found", status=404)
        return found

    async def _answers(
        self, asked: Asked, caller: tuple[EpisodeSession, int], body: Body
    ) -> Sequence[Answer]:
        session, attempt = caller
        wishes = {**_sampling(body), **body}
        self._check_rendering(body)
        self._warn_of_ignored(wishes)
        for name in ("n", "best_of"):
            if wishes.get(name) not in (None, 1):
                raise RefusedError(
                    f"{name} = {wishes[name]}: a dialogue goes on with one answer; "
                    "training.num_generations says how many episodes a problem has"
                )
        return [await asyncio.wrap_future(session.ask(asked, attempt))]

    def _fail(self, error: Exception, caller: tuple[EpisodeSession, int]) -> NoReturn:
        caller[0].spoil(error)  # an answer of 500 could become a score

    def _check_rendering(self, body: Body) -> None:
        """Raise `RefusedError` for options of the chat template that differ from the run's."""
        given = body.get("chat_template_kwargs")
        for name, value in given.items() if isinstance(given, Mapping) else ():
            if value is not None and self._chat.options.get(name) != value:
                raise RefusedError(
                    f"chat_template_kwargs has {name} = {value!r}: how chats are rendered is the "
                    "run's; set training.trl.chat_template_kwargs, and leave it out here"
                )

    def _warn_of_ignored(self, body: Body) -> None:
        """Warn of each field that no answer follows, once for each name."""
        for name in IGNORED_FIELDS & body.keys() - self._warned:
            value = body[name]
            matters = value is False if name in TRUE_BY_DEFAULT else value not in NEUTRAL_VALUES
            if matters and value is not None:
                self._warned.add(name)
                logger.warning(
                    "requests say %s = %.200r: how is sampled is the run's, and no answer is bound "
                    "to that",
                    *(name, value),
                )
        for role in _roles(body) - ROLES - self._warned:
            self._warned.add(role)
            logger.warning(
                "a message has the role %r, which OpenAI's protocol does not know (%s): what the "
                "model reads there is as its chat template has it",
                *(role, ", ".join(sorted(ROLES))),
            )


def _sampling(body: Body) -> Mapping[str, Any]:
    given = body.get("sampling_params")
    return given if isinstance(given, Mapping) else {}


def _roles(body: Body) -> set[str]:
    given = body.get("messages")
    messages = given if isinstance(given, list) else ()
    roles = [each.get("role") for each in messages if isinstance(each, Mapping)]
    return {role for role in roles if isinstance(role, str)}
