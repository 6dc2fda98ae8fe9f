"""The gRPC service: who calls, whether they may, and which method answers.

A class answers an RPC by a method of its name, `async def Name(self, request, caller)`, or, where
the answer is a stream, `async def stream_Name(self, request, caller, send)`. An RPC that no class
answers is refused as unimplemented and recorded.
"""

from __future__ import annotations

import asyncio
import collections
import traceback
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Protocol

from grpclib import GRPCError, Status
from grpclib.exceptions import StreamTerminatedError
from grpclib.server import Stream
from h2.exceptions import H2Error

from .types import Caller, World

ONCE = frozenset(
    ["FunctionMap", "FunctionPutInputs", "FunctionRetryInputs", "DictUpdate", "DictPop"]
)
"""RPCs that would do something else when done twice.

A client that lost the answer sends the request again with the same idempotency key; it gets the
answer of the first time.
"""
REMEMBERED = 1000
"""Answers of `ONCE` that are kept."""

Handler = Callable[[Stream[Any, Any]], Awaitable[None]]


class Callers(Protocol):
    """Tells who sent an RPC."""

    def identify(self, metadata: dict[str, str], port: int) -> Caller:
        """The caller; raises GRPCError if they may not call."""


class Dispatcher:
    """Finds the method that answers an RPC and runs it."""

    def __init__(self, world: World, callers: Callers, parts: Sequence[object]) -> None:
        self.world = world
        self.callers = callers
        self.parts = parts
        self.counts: collections.Counter[str] = collections.Counter()
        self.client_counts: collections.Counter[str] = collections.Counter()
        """Of clients alone: containers are beside the plane."""
        self._answers: collections.OrderedDict[str, Any] = collections.OrderedDict()

    def service(self, base: type) -> Any:
        """An instance of grpclib's `base` whose RPCs this dispatcher answers."""
        names = [name for name in dir(base) if name[0].isupper()]
        return type(base.__name__, (base,), {name: self._handler(name) for name in names})()

    def _find(self, name: str) -> Any:
        return next((getattr(one, name) for one in self.parts if hasattr(one, name)), None)

    def _handler(self, name: str) -> Callable[[object, Stream[Any, Any]], Awaitable[None]]:
        unary, streaming = self._find(name), self._find(f"stream_{name}")

        async def handle(service: object, stream: Stream[Any, Any]) -> None:
            self.counts[name] += 1
            metadata = {k: str(v) for k, v in (stream.metadata or {}).items()}
            address = stream.peer.addr() if stream.peer else None
            try:
                caller = self.callers.identify(metadata, address[1] if address else 0)
                self.client_counts[name] += caller.container is None
                request = await stream.recv_message()
                if streaming is not None:
                    await streaming(request, caller, stream.send_message)
                elif unary is not None:
                    key = metadata.get("x-idempotency-key", "") if name in ONCE else ""
                    await stream.send_message(await self._answer(unary, request, caller, key))
                else:
                    self.world.events.add("unimplemented", rpc=name, by=caller.name)
                    raise GRPCError(Status.UNIMPLEMENTED, f"{name} is not part of this plane")
            except (GRPCError, asyncio.CancelledError, StreamTerminatedError, H2Error):
                raise
            except Exception as error:
                self.world.events.add("plane_error", rpc=name, error=traceback.format_exc())
                raise GRPCError(
                    Status.INTERNAL, f"{name} failed in the plane: {error!r}"
                ) from error

        return handle

    async def _answer(self, unary: Any, request: Any, caller: Caller, key: str) -> Any:
        if key and key in self._answers:
            return self._answers[key]
        answer = await unary(request, caller)
        if key:
            self._answers[key] = answer
            if len(self._answers) > REMEMBERED:
                self._answers.popitem(last=False)
        return answer
