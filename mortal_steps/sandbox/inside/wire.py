"""The messages between the server in a box and its owner, over a socket or over stdin and stdout.

A message is JSON followed by texts. A program is forked from the server and can read whatever the
server's memory holds, so the texts of one program must never reach that memory. They are kept in
mappings of their own (`Text`, `receive_file`), which are given back to the kernel before the next
program is forked.
"""

from __future__ import annotations

import json
import mmap
import os
import struct
from typing import Any, Protocol

HEADER = struct.Struct(">II")
"""Number of bytes of the JSON, then of all texts together."""
SIZES, TEXTS = "sizes", "texts"
"""Keys of a message: the number of bytes of each text, and the texts once they have arrived."""
CHUNK = 65536


class Connection(Protocol):
    """A socket, or an object that is used like one."""

    def sendall(self, data: bytes | memoryview, /) -> None:
        """Send all of the bytes. Raises `OSError` if the other end is closed."""
        ...

    def recv_into(self, buffer: memoryview, /) -> int:
        """Put bytes into the buffer. Returns how many; 0 if the other end is closed."""
        ...

    def fileno(self) -> int: ...


class Text:
    """The beginning of what a program wrote, at most `most` bytes."""

    def __init__(self, most: int) -> None:
        self._memory = mmap.mmap(-1, most + CHUNK, flags=mmap.MAP_PRIVATE)
        self._most = most
        self._size = 0

    @property
    def is_too_long(self) -> bool:
        """Whether the program wrote more than is kept."""
        return self._size > self._most

    def read_from(self, descriptor: int) -> int:
        """Read what fits; returns the number of bytes. Raises `OSError`."""
        end = self._size + CHUNK
        with memoryview(self._memory) as all_of_it, all_of_it[self._size : end] as room:
            size = os.readv(descriptor, [room])
        self._size += size
        return size

    def __len__(self) -> int:
        return min(self._size, self._most)

    def send(self, connection: Connection) -> None:
        """Send the text. Raises `OSError` if the other end is closed."""
        with memoryview(self._memory) as all_of_it, all_of_it[: len(self)] as kept:
            connection.sendall(kept)

    def close(self) -> None:
        self._memory.close()


def encode(message: dict[str, Any], *texts: bytes) -> bytes:
    fields = {**message, SIZES: [len(text) for text in texts]}
    content = json.dumps(fields).encode()
    return HEADER.pack(len(content), sum(map(len, texts))) + content + b"".join(texts)


def decode(content: bytes, length: int) -> dict[str, Any]:
    """Return the message in `content`, `length` bytes of it JSON; else raises `ValueError`."""
    message = json.loads(content[:length])
    if not isinstance(message, dict):
        raise ValueError("the message is not a JSON object")
    texts, at = [], length
    for size in message.get(SIZES, []):
        texts.append(content[at : at + size])
        at += size
    return {**message, TEXTS: texts}


def send(connection: Connection, message: dict[str, Any], *texts: Text) -> None:
    """Send a message with its texts. Raises `OSError` if the other end is closed."""
    sizes = [len(text) for text in texts]
    content = json.dumps({**message, SIZES: sizes}).encode()
    connection.sendall(HEADER.pack(len(content), sum(sizes)) + content)
    for text in texts:
        text.send(connection)


def receive(connection: Connection, largest: int) -> dict[str, Any]:
    """Receive a message with its texts. Raises `EOFError` at the end, `ValueError` for no message
    or more than `largest` bytes."""
    length, texts = _lengths(connection, largest)
    return decode(_exactly(connection, length + texts), length)


def receive_head(connection: Connection, largest: int) -> dict[str, Any]:
    """Receive a message without the texts that follow it; raises as `receive`."""
    length, _ = _lengths(connection, largest)
    return decode(_exactly(connection, length), length)


def receive_file(connection: Connection, size: int) -> int:
    """Receive a text into an unnamed file; returns its descriptor. Raises `EOFError`."""
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
        raise ValueError(f"the message has {length + texts} bytes; at most {largest} are allowed")
    return length, texts


def _exactly(connection: Connection, length: int) -> bytes:
    arrived = bytearray(length)
    with memoryview(arrived) as content:
        _fill(connection, content)
    return bytes(arrived)


def _fill(connection: Connection, content: memoryview) -> None:
    """Receive until `content` is full. Raises `EOFError` if the other end is closed."""
    at = 0
    while at < len(content):
        with content[at:] as room:
            size = connection.recv_into(room)
        if not size:
            raise EOFError
        at += size
