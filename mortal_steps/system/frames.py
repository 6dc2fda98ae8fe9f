"""How a process and its owner talk: length-prefixed messages over a socket.

Both ends belong to one user. The socket is inherited, or both have proven who they are (`links`).
Messages are pickles, but for those of a process that runs code of users (`mortal_steps.hosts`).
"""

import asyncio
import pickle
import socket
import struct
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

HEADER = struct.Struct(">Q")


@dataclass(frozen=True, kw_only=True, slots=True)
class Construct:
    """First frame: which object to make, whose methods are called then."""

    factory: str
    """`module:Class`."""
    kwargs: Mapping[str, Any]
    late_at: float | None = None
    """When to write down where in its code the process is, if the object is not made yet: by the
    monotonic clock, which is one for all processes of a machine."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Request:
    """Call a method of the object."""

    number: int
    method: str
    payload: Mapping[str, Any]
    label: str = ""
    """What the call is, such as `train_step/12/0`: the container logs when it begins and ends."""
    timeout_s: float | None = None
    """When to write down where in its code the process is, if the call lasts longer."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Answer:
    """What came of a request: a value or an error."""

    number: int
    value: Any = None
    error: BaseException | None = None


class FrameError(Exception):
    """A frame is longer than the receiver takes."""


def send_frame(connection: socket.socket, message: object) -> None:
    connection.sendall(encode_frame(message))


def send_bytes(connection: socket.socket, content: bytes) -> None:
    connection.sendall(HEADER.pack(len(content)) + content)


def receive_frame(connection: socket.socket, *, deadline: float | None = None) -> Any:
    """Blocking receive of one frame. Raises `EOFError` when the other end is gone, `TimeoutError`
    at `deadline` (monotonic)."""
    return pickle.loads(receive_bytes(connection, deadline=deadline))


def receive_bytes(
    connection: socket.socket, *, deadline: float | None = None, largest: int | None = None
) -> bytes:
    """Receive a frame's content, however it trickles in. Raises `EOFError` at the end,
    `TimeoutError` at `deadline` (monotonic), `FrameError` for more than `largest` bytes."""
    (length,) = HEADER.unpack(_receive_exactly(connection, HEADER.size, deadline))
    if largest is not None and length > largest:
        raise FrameError(f"it is {length} bytes long")
    return _receive_exactly(connection, length, deadline)


class Frames(asyncio.Protocol):
    """The owner's end: hands frames to `receive`, calls `ended` last. As it is no task, cancelling
    all tasks, as SIGTERM does to a flow run, leaves the workers in reach."""

    def __init__(self, receive: Callable[[Any], None], ended: Callable[[], None]) -> None:
        self._receive = receive
        self._ended = ended
        self._arrived = bytearray()

    def data_received(self, data: bytes) -> None:
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
        self._ended()


def encode_frame(message: object) -> bytes:
    payload = pickle.dumps(message, protocol=5)
    return HEADER.pack(len(payload)) + payload


def _receive_exactly(connection: socket.socket, length: int, deadline: float | None) -> bytes:
    chunks = bytearray()
    while len(chunks) < length:
        if deadline is not None:
            if (left := deadline - time.monotonic()) <= 0:
                raise TimeoutError
            connection.settimeout(left)
        try:
            chunk = connection.recv(min(length - len(chunks), 1 << 20))
        except ConnectionResetError:  # it ended with something of ours unread
            chunk = b""
        if not chunk:
            raise EOFError
        chunks += chunk
    return bytes(chunks)
