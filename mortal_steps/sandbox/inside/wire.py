"""How the server in a box and its owner talk: length-prefixed JSON over a socket."""

from __future__ import annotations

import json
import socket
import struct
from typing import Any

HEADER = struct.Struct(">I")


def send(connection: socket.socket, message: dict[str, Any]) -> None:
    """Raises `OSError` when the other end is gone."""
    content = json.dumps(message).encode()
    connection.sendall(HEADER.pack(len(content)) + content)


def receive(connection: socket.socket, largest: int) -> dict[str, Any]:
    """Raises `EOFError` when the other end is gone, and `ValueError` for what is no message."""
    (length,) = HEADER.unpack(_exactly(connection, HEADER.size))
    if length > largest:
        raise ValueError(f"a message of {length} bytes")
    message = json.loads(_exactly(connection, length))
    if not isinstance(message, dict):
        raise ValueError("a message that is no object")
    return message


def _exactly(connection: socket.socket, length: int) -> bytes:
    arrived = bytearray()
    while len(arrived) < length:
        chunk = connection.recv(min(length - len(arrived), 1 << 20))
        if not chunk:
            raise EOFError
        arrived += chunk
    return bytes(arrived)
