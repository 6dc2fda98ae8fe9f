"""TCP connections whose other ends are on another machine, as numbered pieces of bytes."""

import contextlib
import queue
import socket
import threading
from collections.abc import Callable

PIECE = 1 << 16
"""Bytes that are read at a time."""


class Connections:
    """Passes on what arrives here by `send`, which takes a number and bytes, none at the end."""

    def __init__(self, send: Callable[[int, bytes], object]) -> None:
        self._send = send
        self._queues: dict[int, queue.SimpleQueue[bytes]] = {}

    def add(
        self, number: int, connection: socket.socket, announce: Callable[[], object] = lambda: None
    ) -> None:
        """Take a connection; `announce` it once an answer can be taken, before anything is sent."""
        waiting = self._queues[number] = queue.SimpleQueue()
        announce()
        for work in (self._read, self._write):
            given = (number, connection, waiting)
            threading.Thread(target=work, args=given, daemon=True, name="connection").start()

    def received(self, number: int, content: bytes) -> None:
        """Take what arrived there, or its end."""
        if (waiting := self._queues.get(number)) is not None:
            waiting.put(content)

    def close(self) -> None:
        for waiting in list(self._queues.values()):
            waiting.put(b"")

    def _read(
        self, number: int, connection: socket.socket, waiting: queue.SimpleQueue[bytes]
    ) -> None:
        with contextlib.suppress(OSError):  # either end may go
            while content := connection.recv(PIECE):
                self._send(number, content)
        self._send(number, b"")
        waiting.put(b"")

    def _write(
        self, number: int, connection: socket.socket, waiting: queue.SimpleQueue[bytes]
    ) -> None:
        with connection:
            with contextlib.suppress(OSError):
                while content := waiting.get():
                    connection.sendall(content)
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)
        del self._queues[number]
