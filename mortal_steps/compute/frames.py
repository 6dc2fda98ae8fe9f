"""How a container and its owner talk: length-prefixed pickles over a socket.

Both ends belong to one user on one machine, and the socket is inherited, never listened on.
"""

from __future__ import annotations

import asyncio
import pickle
import socket
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

HEADER = struct.Struct(">Q")


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


async def read_frame(reader: asyncio.StreamReader) -> Any:
    """Receive one frame; raises `asyncio.IncompleteReadError` when the other end is gone."""
    (length,) = HEADER.unpack(await reader.readexactly(HEADER.size))
    return pickle.loads(await reader.readexactly(length))


def encode_frame(message: object) -> bytes:
    """A message as it travels."""
    payload = pickle.dumps(message, protocol=5)
    return HEADER.pack(len(payload)) + payload


def _receive_exactly(connection: socket.socket, length: int) -> bytes:
    chunks = bytearray()
    while len(chunks) < length:
        chunk = connection.recv(min(length - len(chunks), 1 << 20))
        if not chunk:
            raise EOFError
        chunks += chunk
    return bytes(chunks)
