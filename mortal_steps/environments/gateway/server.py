"""HTTP on this machine: the addresses of episodes."""

from __future__ import annotations

import asyncio
import contextlib
import json
import secrets
import socket
import threading
from collections.abc import AsyncIterator, Iterator, Mapping
from typing import Any

import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from mortal_steps.environments.chat import Chat
from mortal_steps.environments.gateway.conversation import RefusedError
from mortal_steps.environments.gateway.protocol import (
    asked_in,
    chat_chunks,
    chat_completion,
    refusal,
)
from mortal_steps.environments.gateway.session import Session

HOST = "127.0.0.1"
BACKLOG = 2048
"""Connections that may wait to be taken: the episodes of a shard ask all at once."""


class Server:
    """Answers at an address for each episode, in a thread of its own."""

    def __init__(self, chat: Chat) -> None:
        self._chat = chat
        self._sessions: dict[str, Session] = {}
        self._socket = socket.create_server((HOST, 0), backlog=BACKLOG)
        config = uvicorn.Config(
            Starlette(
                routes=[
                    Route("/e/{episode}/v1/models", self._models),
                    Route("/e/{episode}/v1/chat/completions", self._chat_completion, methods=POST),
                ]
            ),
            log_level="warning",
            access_log=False,
            lifespan="off",
            timeout_graceful_shutdown=1,
        )
        self._server = uvicorn.Server(config)
        self._thread = threading.Thread(target=self._serve, name="gateway", daemon=True)
        self._thread.start()

    @contextlib.contextmanager
    def address_of(self, session: Session) -> Iterator[str]:
        """Yield an address at which the session is asked, until the block ends."""
        episode = secrets.token_hex(16)
        self._sessions[episode] = session
        try:
            yield f"http://{HOST}:{self._socket.getsockname()[1]}/e/{episode}/v1"
        finally:
            del self._sessions[episode]

    def close(self) -> None:
        """End it."""
        self._server.should_exit = True
        self._thread.join()
        self._socket.close()

    def _serve(self) -> None:
        self._server.run(sockets=[self._socket])

    def _session(self, request: Request) -> Session:
        session = self._sessions.get(request.path_params["episode"])
        if session is None:
            raise RefusedError("no such episode is played", code="not_found", status=404)
        return session

    async def _models(self, request: Request) -> Response:
        model = {"id": "policy", "object": "model", "created": 0, "owned_by": "mortal"}
        return JSONResponse({"object": "list", "data": [model]})

    async def _chat_completion(self, request: Request) -> Response:
        try:
            session, body = self._session(request), await _body(request)
            answer = await asyncio.wrap_future(session.ask(asked_in(body)))
        except RefusedError as error:
            return JSONResponse(refusal(error), status_code=error.status)
        found = chat_completion(answer, body, self._chat)
        if not body.get("stream"):
            return JSONResponse(found)
        return StreamingResponse(_events(found, body), media_type="text/event-stream")


POST = ("POST",)


async def _body(request: Request) -> Mapping[str, Any]:
    try:
        body = await request.json()
    except ValueError as error:
        raise RefusedError(f"the request is no JSON: {error}") from None
    if not isinstance(body, Mapping):
        raise RefusedError("the request is no JSON object")
    return body


async def _events(found: Mapping[str, Any], body: Mapping[str, Any]) -> AsyncIterator[str]:
    for chunk in chat_chunks(found, body):
        yield f"data: {json.dumps(chunk)}\n\n"
    yield "data: [DONE]\n\n"
