"""How a container and its owner talk: length-prefixed pickles over a socket.

Both ends belong to one user on one machine, and the socket is inherited, never listened on.
"""

from __future__ import annotations

import asyncio
import pickle
import select
import socket
import struct
import subprocess
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

HEADER = struct.Struct(">Q")

LOOK_EVERY_S = 0.5
"""How often a silent process is looked at: one forked from it may hold its connection open."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Construct:
    """First frame of a container: which worker to make."""

    factory: str
    """`module:Class`."""
    kwargs: Mapping[str, Any]


@dataclass(frozen=True, kw_only=True, slots=True)
class Request:
    """Call a method of the worker."""

    number: int
    method: str
    payload: Mapping[str, Any]
    label: str = ""
    """What the call is, such as `train_step/12/0`: the container logs when it begins and ends."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Answer:
    """What came of a request: a value or an error."""

    number: int
    value: Any = None
    error: Exception | None = None


def send_frame(connection: socket.socket, message: object) -> None:
    """Blocking send of one frame."""
    connection.sendall(encode_frame(message))


def receive_frame(connection: socket.socket) -> Any:
    """Blocking receive of one frame; raises `EOFError` when the other end is gone."""
    (length,) = HEADER.unpack(_receive_exactly(connection, HEADER.size))
    return pickle.loads(_receive_exactly(connection, length))


class Frames(asyncio.Protocol):
    """The owner's end: hands each frame that arrives to `receive`, and calls `ended` at the last.

    It is no task of the event loop, so that the cancellation of all tasks, which is what SIGTERM
    does to a deployment's flow run, leaves the workers in reach.
    """

    def __init__(self, receive: Callable[[Any], None], ended: Callable[[], None]) -> None:
        self._receive = receive
        self._ended = ended
        self._arrived = bytearray()

    def data_received(self, data: bytes) -> None:
        """Part of a frame, or several."""
        self._arrived += data
        while len(self._arrived) >= HEADER.size:
            (length,) = HEADER.unpack_from(self._arrived)
            end = HEADER.size + length
            if len(self._arrived) < end:
                return
            frame = bytes(self._arrived[HEADER.size : end])
            del self._arrived[:end]
            self._receive(pickle.loads(frame))

    def connection_lost(self, exc: Exception | None) -> None:
        """The other end is gone, or this one was closed."""
        self._ended()


def encode_frame(message: object) -> bytes:
    """A message as it travels."""
    payload = pickle.dumps(message, protocol=5)
    return HEADER.pack(len(payload)) + payload


def _at_once() -> None:
    """Wait for nothing."""


def _receive_exactly(
    connection: socket.socket, length: int, wait: Callable[[], None] = _at_once
) -> bytes:
    chunks = bytearray()
    while len(chunks) < length:
        wait()
        chunk = connection.recv(min(length - len(chunks), 1 << 20))
        if not chunk:
            raise EOFError
        chunks += chunk
    return bytes(chunks)


def received(
    connection: socket.socket, length: int, process: subprocess.Popen[bytes], deadline: float
) -> bytes:
    """So many bytes of a process, however they trickle in until the monotonic clock shows
    `deadline`; raises `TimeoutError`, or `EOFError` if it has ended."""
    return _receive_exactly(connection, length, lambda: _await_bytes(connection, process, deadline))


def _await_bytes(
    connection: socket.socket, process: subprocess.Popen[bytes], deadline: float
) -> None:
    readable = select.poll()
    readable.register(connection, select.POLLIN)
    while (left := deadline - time.monotonic()) > 0:
        if readable.poll(1000 * min(left, LOOK_EVERY_S)):
            return
        if process.poll() is not None:
            raise EOFError
    raise TimeoutError
