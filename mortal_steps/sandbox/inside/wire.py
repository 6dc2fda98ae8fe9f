"""How the server in a box and its owner talk: length-prefixed JSON over a socket,
or over what a command reads and writes."""

from __future__ import annotations

import json
import struct
from typing import Any, Protocol

HEADER = struct.Struct(">I")


class Connection(Protocol):
    """A socket, or what is used like one."""

    def sendall(self, data: bytes, /) -> None:
        """Raises `OSError` when the other end is gone."""
        ...

    def recv(self, size: int, /) -> bytes:
        """So many bytes at most; none when the other end is gone."""
        ...

    def fileno(self) -> int:
        """Of the descriptor that is read."""
        ...


def encode(message: dict[str, Any]) -> bytes:
    """A message as it travels."""
    content = json.dumps(message).encode()
    return HEADER.pack(len(content)) + content


def decode(content: bytes) -> dict[str, Any]:
    """The message; raises `ValueError` for what is none."""
    message = json.loads(content)
    if not isinstance(message, dict):
        raise ValueError("a message that is no object")
    return message


def send(connection: Connection, message: dict[str, Any]) -> None:
    """Raises `OSError` when the other end is gone."""
    connection.sendall(encode(message))


def receive(connection: Connection, largest: int) -> dict[str, Any]:
    """Raises `EOFError` when the other end is gone, and `ValueError` for what is no message."""
    (length,) = HEADER.unpack(_exactly(connection, HEADER.size))
    if length > largest:
        raise ValueError(f"a message of {length} bytes")
    return decode(_exactly(connection, length))


def _exactly(connection: Connection, length: int) -> bytes:
    arrived = bytearray()
    while len(arrived) < length:
        chunk = connection.recv(min(length - len(arrived), 1 << 20))
        if not chunk:
            raise EOFError
        arrived += chunk
    return bytes(arrived)
