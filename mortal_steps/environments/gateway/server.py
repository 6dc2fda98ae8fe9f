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

from mortal_steps.environments.chat import Chat
from mortal_steps.environments.gateway.conversation import Asked, RefusedError
from mortal_steps.environments.gateway.protocol import WAYS, Way, refusal
from mortal_steps.environments.gateway.session import Session

logger = logging.getLogger(__name__)

HOST = "127.0.0.1"
EPISODE = "/e/{episode}"
UNHEEDED = ("tool_choice", "response_format", "stop", "guided_json", "structured_outputs")
"""What a request may wish of the answer, beside what is the run's as a matter of course."""
OF_NO_MATTER: tuple[Any, ...] = ("auto", "none", {"type": "text"}, [], "")
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
        model = {"id": "policy", "object": "model", "created": 0, "owned_by": "mortal"}
        return JSONResponse({"object": "list", "data": [model]})

    def _ways(self) -> Iterator[Route]:
        for way in WAYS:
            answer = functools.partial(self._answer, way)
            yield Route(f"{EPISODE}{way.path}", answer, methods=["POST"])

    async def _answer(self, way: Way, request: Request) -> Response:
        try:
            body = await _body(request)
            session, attempt = self._session(request)
            self._tell_unheeded(body)
            asked = self._known(_asked(way, body))
            try:
                answer = await asyncio.wrap_future(session.ask(asked, attempt))
                found = way.answered(answer, body, self._chat)
            except RefusedError:
                raise
            except Exception as error:  # an answer of 500 could become a score
                logger.exception("a request could not be answered")
                session.spoil(error)
        except RefusedError as error:
            return JSONResponse(refusal(error), status_code=error.status)
        if not body.get("stream"):
            return JSONResponse(found)
        events = _events(way.chunks(found, body))
        return StreamingResponse(events, media_type="text/event-stream")

    def _known(self, asked: Asked) -> Asked:
        unknown = [each for each in asked.ids or () if not 0 <= each < self._chat.num_ids]
        if unknown:
            raise RefusedError(f"the model has no token {unknown[0]}")
        return asked

    def _tell_unheeded(self, body: Mapping[str, Any]) -> None:
        """Say once of each wish that answers are not bound to."""
        for name in UNHEEDED:
            if body.get(name) not in (None, *OF_NO_MATTER) and name not in self._told:
                self._told.add(name)
                logger.warning(
                    "requests say %s = %.200r: how is sampled is the run's, and no answer is bound "
                    "to that",
                    *(name, body[name]),
                )


def _asked(way: Way, body: Mapping[str, Any]) -> Asked:
    try:
        return way.asked_in(body)
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise RefusedError(
            f"the request lacks something, or is of another form: {error!r}"
        ) from None


async def _body(request: Request) -> Mapping[str, Any]:
    try:
        body = await request.json()
    except ValueError as error:
        raise RefusedError(f"the request is no JSON: {error}") from None
    if not isinstance(body, Mapping):
        raise RefusedError("the request is no JSON object")
    return body


async def _events(chunks: Iterable[Mapping[str, Any]]) -> AsyncIterator[str]:
    for chunk in chunks:
        yield f"data: {json.dumps(chunk)}\n\n"
    yield "data: [DONE]\n\n"
