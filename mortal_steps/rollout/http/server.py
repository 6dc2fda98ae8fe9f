"""HTTP on this machine: requests in several dialects, and who answers them."""

import asyncio
import contextlib
import functools
import json
import logging
import socket
import threading
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from typing import Any, NoReturn

import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route
from uvicorn.protocols.http.auto import AutoHTTPProtocol

from mortal_steps.rollout.http.dialects import Body, Dialect, TokenText
from mortal_steps.rollout.http.messages import TOO_LONG, Answer, Asked, RefusedError

logger = logging.getLogger(__name__)

HOST = "127.0.0.1"
LARGEST_BODY = 64 * 2**20
"""Bytes of a request, at most."""
HEAD_S = 30.0
"""Seconds that a connection may take until its first or its next request has begun."""
BACKLOG = 2048
"""Connections that may wait to be accepted: all episodes of a shard connect at once."""


class Server(ABC):
    """Answers requests in a thread of its own; a subclass has the model sample."""

    def __init__(
        self,
        dialects: Iterable[Dialect],
        ports: Sequence[int],
        *,
        prefix: str = "",
        num_ids: int,
        token_text: TokenText,
    ) -> None:
        """Listen at the first of `ports` that is free, of which 0 is any; the paths of `dialects`
        begin with `prefix`. The model has `num_ids` tokens. Raises `OSError` if no port is free."""
        self._num_ids, self._token_text = num_ids, token_text
        self._socket = _listening(ports)
        self.port: int = self._socket.getsockname()[1]
        routes = [Route(f"{prefix}/v1/models", self._models), *self._more_routes()]
        for dialect in dialects:
            answer = functools.partial(self._respond, dialect)
            routes.append(Route(prefix + dialect.path, answer, methods=["POST"]))
        config = uvicorn.Config(
            Starlette(routes=routes),
            http=_Protocol,
            log_config=None,
            log_level="warning",
            access_log=False,
            lifespan="off",
            timeout_graceful_shutdown=1,
        )
        self._server = uvicorn.Server(config)
        self._thread = threading.Thread(target=self._serve, name="policy over HTTP", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """End it."""
        self._server.should_exit = True
        self._thread.join()
        self._socket.close()

    @abstractmethod
    async def _answers(self, asked: Asked, caller: Any, body: Body) -> Sequence[Answer]:
        """Return what the model says; raise `RefusedError`."""

    def _caller(self, request: Request) -> Any:
        """Return who asks, or raise `RefusedError`, before the request's body is read."""
        return None

    def _fail(self, error: Exception, caller: Any) -> NoReturn:
        """Raise `RefusedError` after another error."""
        raise RefusedError(f"{type(error).__name__}: {error}", code="internal", status=500)

    def _more_routes(self) -> Iterable[Route]:
        return ()

    def _serve(self) -> None:
        self._server.run(sockets=[self._socket])

    async def _models(self, request: Request) -> Response:
        try:
            self._caller(request)
        except RefusedError as error:
            return _refusal(error)
        model = {"id": "policy", "object": "model", "created": 0, "owned_by": "mortal"}
        return JSONResponse({"object": "list", "data": [model]})

    async def _respond(self, dialect: Dialect, request: Request) -> Response:
        try:
            caller = self._caller(request)
            body = await _body(request)
            asked = self._parsed(dialect, body)
            try:
                answers = await self._answers(asked, caller, body)
                found = dialect.render(answers, body, self._token_text)
                chunks = list(dialect.chunks(found, body)) if body.get("stream") else []
            except RefusedError:
                raise
            except Exception as error:
                logger.exception("a request could not be answered")
                self._fail(error, caller)
        except RefusedError as error:
            return _refusal(error)
        if not chunks:
            return JSONResponse(found)
        return StreamingResponse(_events(chunks), media_type="text/event-stream")

    def _parsed(self, dialect: Dialect, body: Body) -> Asked:
        try:
            asked = dialect.parse(body)
        except (AttributeError, KeyError, TypeError, ValueError, RecursionError) as error:
            raise RefusedError(
                f"the request lacks something, or is of another form: {error!r}"
            ) from None
        asked_ids = [each for one in asked.several or (asked,) for each in one.ids or ()]
        unknown = [each for each in asked_ids if not 0 <= each < self._num_ids]
        if unknown:
            raise RefusedError(
                f"the model has no token {unknown[0]}: its tokens are 0 to {self._num_ids - 1}; "
                "is it of another model's tokenizer?"
            )
        return asked


def _listening(ports: Sequence[int]) -> socket.socket:
    for port in ports[:-1]:
        with contextlib.suppress(OSError):
            return socket.create_server((HOST, port), backlog=BACKLOG)
    return socket.create_server((HOST, ports[-1]), backlog=BACKLOG)


async def _body(request: Request) -> Body:
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


def _refusal(error: RefusedError) -> Response:
    kind = "invalid_request_error" if error.status < 500 else "server_error"
    # Some clients look for these words, and not at the code.
    what = f"context length exceeded: {error}" if error.code == TOO_LONG else str(error)
    body = {"error": {"message": what, "type": kind, "param": None, "code": error.code}}
    later = None if error.retry_after_s is None else {"Retry-After": str(error.retry_after_s)}
    return JSONResponse(body, status_code=error.status, headers=later)


async def _events(chunks: Iterable[Body]) -> AsyncIterator[str]:
    for chunk in chunks:
        yield f"data: {json.dumps(chunk)}\n\n"
    yield "data: [DONE]\n\n"


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
