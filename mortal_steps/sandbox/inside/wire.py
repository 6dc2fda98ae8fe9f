"""How the server in a box and its owner talk, over a socket or what a command reads and writes.

A message is JSON, and texts behind it. The server forks programs, which can read whatever it ever
had in its memory: a program's texts must not come to lie there. They have memory of their own
(`Text`, `receive_file`), which is given back to the kernel before the next program is forked.
"""

from __future__ import annotations

import json
import mmap
import os
import struct
from typing import Any, Protocol

HEADER = struct.Struct(">II")
"""Bytes of the JSON, and of the texts together."""
SIZES, TEXTS = "sizes", "texts"
"""Keys of a message: bytes of each text as it travels, and the texts once they have arrived."""
CHUNK = 65536


class Connection(Protocol):
    """A socket, or what is used like one."""

    def sendall(self, data: bytes | memoryview, /) -> None:
        """Raises `OSError` when the other end is gone."""
        ...

    def recv_into(self, buffer: memoryview, /) -> int:
        """How many bytes were put there; none when the other end is gone."""
        ...

    def fileno(self) -> int:
        """Of the descriptor that is read."""
        ...


class Text:
    """What a program wrote, as far as it is kept."""

    def __init__(self, most: int) -> None:
        self._memory = mmap.mmap(-1, most + CHUNK, flags=mmap.MAP_PRIVATE)
        self._most = most
        self._size = 0

    @property
    def is_too_long(self) -> bool:
        """Whether more was written than is kept."""
        return self._size > self._most

    def read_from(self, descriptor: int) -> int:
        """Bytes that were read, where it is not too long yet; raises `OSError`."""
        end = self._size + CHUNK
        with memoryview(self._memory) as all_of_it, all_of_it[self._size : end] as room:
            size = os.readv(descriptor, [room])
        self._size += size
        return size

    def __len__(self) -> int:
        return min(self._size, self._most)

    def send(self, connection: Connection) -> None:
        """Raises `OSError` when the other end is gone."""
        with memoryview(self._memory) as all_of_it, all_of_it[: len(self)] as kept:
            connection.sendall(kept)

    def close(self) -> None:
        """Give its memory back."""
        self._memory.close()


def encode(message: dict[str, Any], *texts: bytes) -> bytes:
    """A message as it travels."""
    told = {**message, SIZES: [len(text) for text in texts]}
    content = json.dumps(told).encode()
    return HEADER.pack(len(content), sum(map(len, texts))) + content + b"".join(texts)


def decode(content: bytes, length: int) -> dict[str, Any]:
    """The message whose JSON has this length; raises `ValueError` for what is none."""
    message = json.loads(content[:length])
    if not isinstance(message, dict):
        raise ValueError("a message that is no object")
    texts, at = [], length
    for size in message.get(SIZES, []):
        texts.append(content[at : at + size])
        at += size
    return {**message, TEXTS: texts}


def send(connection: Connection, message: dict[str, Any], *texts: Text) -> None:
    """Raises `OSError` when the other end is gone."""
    sizes = [len(text) for text in texts]
    content = json.dumps({**message, SIZES: sizes}).encode()
    connection.sendall(HEADER.pack(len(content), sum(sizes)) + content)
    for text in texts:
        text.send(connection)


def receive(connection: Connection, largest: int) -> dict[str, Any]:
    """A message with its texts.

    Raises `EOFError` when the other end is gone, and `ValueError` for what is no message.
    """
    length, texts = _lengths(connection, largest)
    return decode(_exactly(connection, length + texts), length)


def receive_head(connection: Connection, largest: int) -> dict[str, Any]:
    """A message whose texts are to be received yet; raises as `receive` does."""
    length, _ = _lengths(connection, largest)
    return decode(_exactly(connection, length), length)


def receive_file(connection: Connection, size: int) -> int:
    """The descriptor of a file without a name that holds the next text; raises `EOFError`."""
    if not size:
        return os.open("/dev/null", os.O_RDONLY)
    descriptor = os.memfd_create("text", os.MFD_ALLOW_SEALING)
    os.ftruncate(descriptor, size)
    with mmap.mmap(descriptor, size) as memory, memoryview(memory) as content:
        _fill(connection, content)
    return descriptor


def _lengths(connection: Connection, largest: int) -> tuple[int, int]:
    length, texts = HEADER.unpack(_exactly(connection, HEADER.size))
    if length + texts > largest:
        raise ValueError(f"a message of {length + texts} bytes")
    return length, texts


def _exactly(connection: Connection, length: int) -> bytes:
    arrived = bytearray(length)
    with memoryview(arrived) as content:
        _fill(connection, content)
    return bytes(arrived)


def _fill(connection: Connection, content: memoryview) -> None:
    """Raises `EOFError` when the other end is gone."""
    at = 0
    while at < len(content):
        with content[at:] as room:
            size = connection.recv_into(room)
        if not size:
            raise EOFError
        at += size
