"""The line between clients and the plane, which a test can cut.

Clients reach the plane through a relay of their own; containers reach it directly. While the line
is cut its connections are reset and new ones refused, as when a laptop loses its network. It may be
long: what is sent arrives after a while, in either direction, and more may be on its way meanwhile.
"""

from __future__ import annotations

import asyncio
import contextlib

CHUNK = 1 << 16


class Line:
    """Relays connections on a port of its own to another; an answer takes `delay_s` longer."""

    def __init__(self, target_port: int, port: int = 0, delay_s: float = 0.0) -> None:
        self._target_port = target_port
        self._one_way_s = delay_s / 2
        self.port = port
        """Where clients connect; 0 until `open` chose one."""
        self._server: asyncio.Server | None = None
        self._writers: set[asyncio.StreamWriter] = set()
        self._relays: set[asyncio.Task[None]] = set()
        self._numbers: dict[int, int] = {}
        self._num_connections = 0

    async def open(self) -> None:
        """Accept connections, on the port of before if there was one."""
        if self._server is not None:
            return
        self._server = await asyncio.start_server(self._relay, "127.0.0.1", self.port)
        self.port = int(self._server.sockets[0].getsockname()[1])

    def cut(self) -> None:
        """Reset all connections and refuse new ones."""
        if self._server is not None:
            self._server.close()
            self._server = None
        for writer in list(self._writers):
            writer.transport.abort()

    async def close(self) -> None:
        """Cut the line and wait until nothing of it is left."""
        self.cut()
        if self._relays:
            await asyncio.wait(self._relays)

    def connection(self, relayed_port: int) -> int:
        """Which of the clients' connections is relayed from that port; 0 if none is."""
        return self._numbers.get(relayed_port, 0)

    async def _relay(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._relays.add(task)
        task.add_done_callback(self._relays.discard)
        to_plane, writer_to_plane = await asyncio.open_connection("127.0.0.1", self._target_port)
        self._num_connections += 1
        port = writer_to_plane.get_extra_info("sockname")[1]
        self._numbers[port] = self._num_connections
        both = {writer, writer_to_plane}
        self._writers |= both
        try:
            await asyncio.gather(
                _pump(reader, writer_to_plane, self._one_way_s),
                _pump(to_plane, writer, self._one_way_s),
            )
        finally:
            self._writers -= both
            for one in both:
                one.close()


async def _pump(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, one_way_s: float
) -> None:
    with contextlib.suppress(ConnectionError):
        if one_way_s:
            await _pump_late(reader, writer, one_way_s)
        while data := await reader.read(CHUNK):
            writer.write(data)
            await writer.drain()
        if writer.can_write_eof():
            writer.write_eof()


async def _pump_late(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, one_way_s: float
) -> None:
    """Until the reader's end; each piece arrives `one_way_s` after it was sent."""
    loop = asyncio.get_running_loop()
    under_way: asyncio.Queue[tuple[float, bytes]] = asyncio.Queue()

    async def deliver() -> None:
        while True:
            due, data = await under_way.get()
            await asyncio.sleep(due - loop.time())
            if not data:
                return
            writer.write(data)
            await writer.drain()

    delivering = asyncio.create_task(deliver())
    try:
        data = b"first"
        while data:
            data = await reader.read(CHUNK)
            under_way.put_nowait((loop.time() + one_way_s, data))
        await delivering
    finally:
        delivering.cancel()
