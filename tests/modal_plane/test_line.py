"""The line between clients and the plane: how long it takes, and what a cut does."""

import asyncio
import contextlib
import time

import pytest

from .line import Line

DELAY_S = 0.2


@contextlib.asynccontextmanager
async def a_line():
    """A long line to a server that sends everything back."""

    async def echo(reader, writer):
        while data := await reader.read(100):
            writer.write(data)
        writer.close()

    server = await asyncio.start_server(echo, "127.0.0.1", 0)
    line = Line(server.sockets[0].getsockname()[1], delay_s=DELAY_S)
    await line.open()
    try:
        yield line
    finally:
        await line.close()
        server.close()


def test_an_answer_takes_as_long_as_the_line_and_many_take_no_longer():
    asyncio.run(ask_often())


def test_what_is_under_way_when_the_line_is_cut_is_lost():
    asyncio.run(ask_and_cut())


async def ask_often():
    async with a_line() as line:
        reader, writer = await asyncio.open_connection("127.0.0.1", line.port)
        began = time.monotonic()
        for number in range(20):
            writer.write(b"%02d" % number)
            await asyncio.sleep(0.01)
        assert await reader.readexactly(2) == b"00"
        assert time.monotonic() - began >= DELAY_S
        assert await reader.readexactly(38) == b"".join(b"%02d" % n for n in range(1, 20))
        assert time.monotonic() - began < 15 * DELAY_S
        writer.write_eof()
        assert await reader.read() == b""
        writer.close()


async def ask_and_cut():
    async with a_line() as line:
        reader, writer = await asyncio.open_connection("127.0.0.1", line.port)
        writer.write(b"lost")
        await asyncio.sleep(DELAY_S / 4)
        line.cut()
        with pytest.raises((ConnectionError, asyncio.IncompleteReadError)):
            await reader.readexactly(4)
        writer.close()
