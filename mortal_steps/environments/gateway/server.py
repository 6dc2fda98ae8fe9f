"""HTTP on this machine: the addresses of episodes."""

import asyncio
import contextlib
import functools
import json
import logging
import secrets
import socket
import threading
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping
from typing import Any

import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route
from uvicorn.protocols.http.auto import AutoHTTPProtocol

from mortal_steps.environments.chat import Chat
from mortal_steps.environments.gateway.conversation import Asked, RefusedError
from mortal_steps.environments.gateway.protocol import ROLES, WAYS, Way, refusal
from mortal_steps.environments.gateway.session import Session

logger = logging.getLogger(__name__)

HOST = "127.0.0.1"
EPISODE = "/e/{episode}"
# fmt: off
UNHEEDED = frozenset((
    "tool_choice", "response_format", "stop", "stop_token_ids", "guided_json",
    "guided_regex", "guided_choice", "guided_grammar", "structured_outputs", "functions",
    "function_call", "logit_bias", "allowed_token_ids", "bad_words", "min_tokens",
    "ignore_eos", "top_logprobs", "prompt_logprobs", "truncate_prompt_tokens", "echo",
    "suffix", "chat_template", "documents", "continue_final_message",
    "add_generation_prompt", "parallel_tool_calls", "modalities", "prediction",
))
# fmt: on
"""What a request may wish of the answer, or of how the dialogue is rendered, beside what is the
run's as a matter of course."""
OF_NO_MATTER: tuple[Any, ...] = ("auto", "none", {"type": "text"}, ["text"], [], {}, "", 0)
BY_DEFAULT = ("add_generation_prompt", "parallel_tool_calls")
"""Of these, what matters is `false`."""
LARGEST_BODY = 64 * 2**20
"""Bytes of a request."""
HEAD_S = 30.0
"""How long a connection may take until its request has begun, or its next one."""
BACKLOG = 2048
"""Connections that may wait to be taken: the episodes of a shard ask all at once."""


class Server:
    """Answers at an address for each episode, in a thread of its own."""

    def __init__(self, chat: Chat) -> None:
        self._chat = chat
        self._sessions: dict[str, tuple[Session, int]] = {}
        self._told: set[str] = set()
        self._socket = socket.create_server((HOST, 0), backlog=BACKLOG)
        self._port: int = self._socket.getsockname()[1]
        config = uvicorn.Config(
            Starlette(routes=[Route(f"{EPISODE}/v1/models", self._models), *self._ways()]),
            http=_Protocol,
            log_config=None,
            log_level="warning",
            access_log=False,
            lifespan="off",
            timeout_graceful_shutdown=1,
        )
        self._server = uvicorn.Server(config)
        self._thread = threading.Thread(target=self._serve, name="gateway", daemon=True)
        self._thread.start()

    @contextlib.contextmanager
    def address_of(self, session: Session, reach: Callable[[int], int]) -> Iterator[str]:
        """Yield an address at which this attempt of the session asks, until the block ends; see
        `Fork.reach`."""
        episode = secrets.token_hex(16)
        self._sessions[episode] = session, session.attempt
        try:
            yield f"http://{HOST}:{reach(self._port)}/e/{episode}/v1"
        finally:
            del self._sessions[episode]

    def close(self) -> None:
        """End it."""
        self._server.should_exit = True
        self._thread.join()
        self._socket.close()

    def _serve(self) -> None:
        self._server.run(sockets=[self._socket])

    def _session(self, request: Request) -> tuple[Session, int]:
        found = self._sessions.get(request.path_params["episode"])
        if found is None:
            raise RefusedError("no such episode is played", code="not_found", status=404)
        return found

    async def _models(self, request: Request) -> Response:
        try:
            self._session(request)
        except RefusedError as error:
            return JSONResponse(refusal(error), status_code=error.status)
        model = {"id": "policy", "object": "model", "created": 0, "owned_by": "mortal"}
        return JSONResponse({"object": "list", "data": [model]})

    def _ways(self) -> Iterator[Route]:
        for way in WAYS:
            answer = functools.partial(self._answer, way)
            yield Route(f"{EPISODE}{way.path}", answer, methods=["POST"])

    async def _answer(self, way: Way, request: Request) -> Response:
        try:
            session, attempt = self._session(request)  # before a byte of a stranger's is kept
            body = await _body(request)
            self._check_rendering(body)
            self._tell_unheeded({**_sampling(body), **body})
            asked = self._known(_asked(way, body))
            try:
                answer = await asyncio.wrap_future(session.ask(asked, attempt))
                found = way.answered(answer, body, self._chat)
                chunks = list(way.chunks(found, body)) if body.get("stream") else []
            except RefusedError:
                raise
            except Exception as error:  # an answer of 500 could become a score
                logger.exception("a request could not be answered")
                session.spoil(error)
        except RefusedError as error:
            return JSONResponse(refusal(error), status_code=error.status)
        if not chunks:
            return JSONResponse(found)
        return StreamingResponse(_events(chunks), media_type="text/event-stream")

    def _known(self, asked: Asked) -> Asked:
        unknown = [each for each in asked.ids or () if not 0 <= each < self._chat.num_ids]
        if unknown:
            raise RefusedError(f"the model has no token {unknown[0]}")
        return asked

    def _check_rendering(self, body: Mapping[str, Any]) -> None:
        """Raise `RefusedError` for options of the chat template that are not the run's."""
        given = body.get("chat_template_kwargs")
        for name, value in given.items() if isinstance(given, Mapping) else ():
            if value is not None and self._chat.options.get(name) != value:
                raise RefusedError(
                    f"chat_template_kwargs has {name} = {value!r}: how chats are rendered is the "
                    "run's; set training.trl.chat_template_kwargs, and leave it out here"
                )

    def _tell_unheeded(self, body: Mapping[str, Any]) -> None:
        """Say once of each wish that answers are not bound to."""
        for name in UNHEEDED & body.keys() - self._told:
            value = body[name]
            matters = value is False if name in BY_DEFAULT else value not in OF_NO_MATTER
            if matters and value is not None:
                self._told.add(name)
                logger.warning(
                    "requests say %s = %.200r: how is sampled is the run's, and no answer is bound "
                    "to that",
                    *(name, value),
                )
        for role in _roles(body) - ROLES - self._told:
            self._told.add(role)
            logger.warning(
                "a message has the role %r, which OpenAI's protocol does not know (%s): what the "
                "model reads there is as its chat template has it",
                *(role, ", ".join(sorted(ROLES))),
            )


def _asked(way: Way, body: Mapping[str, Any]) -> Asked:
    try:
        return way.asked_in(body)
    except (AttributeError, KeyError, TypeError, ValueError, RecursionError) as error:
        raise RefusedError(
            f"the request lacks something, or is of another form: {error!r}"
        ) from None


async def _body(request: Request) -> Mapping[str, Any]:
    content = bytearray()
    async for chunk in request.stream():
        content += chunk
        if len(content) > LARGEST_BODY:
            most = LARGEST_BODY // 2**20
            raise RefusedError(f"the request has more than {most} MiB", status=413)
    try:
        body = json.loads(content)
    except (ValueError, RecursionError) as error:
        raise RefusedError(f"the request is no JSON: {error}") from None
    if not isinstance(body, Mapping):
        raise RefusedError("the request is no JSON object")
    return body


def _sampling(body: Mapping[str, Any]) -> Mapping[str, Any]:
    given = body.get("sampling_params")
    return given if isinstance(given, Mapping) else {}


def _roles(body: Mapping[str, Any]) -> set[str]:
    given = body.get("messages")
    messages = given if isinstance(given, list) else ()
    roles = [each.get("role") for each in messages if isinstance(each, Mapping)]
    return {role for role in roles if isinstance(role, str)}


class _Protocol(AutoHTTPProtocol):  # type: ignore[misc,valid-type]
    """uvicorn's, which gives up connections that begin no request: they hold descriptors."""

    _late: asyncio.TimerHandle | None = None

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        self._watch()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        self._watch()

    def connection_lost(self, exc: Exception | None) -> None:
        if self._late is not None:
            self._late.cancel()
        super().connection_lost(exc)

    def _watch(self) -> None:
        if self._is_idle() and self._late is None:
            self._late = self.loop.call_later(HEAD_S, self._give_up)
        elif not self._is_idle() and self._late is not None:
            self._late.cancel()
            self._late = None

    def _give_up(self) -> None:
        self._late = None
        if self._is_idle():
            self.transport.close()

    def _is_idle(self) -> bool:
        return self.cycle is None or bool(self.cycle.response_complete)


async def _events(chunks: Iterable[Mapping[str, Any]]) -> AsyncIterator[str]:
    for chunk in chunks:
        yield f"data: {json.dumps(chunk)}\n\n"
    yield "data: [DONE]\n\n"
