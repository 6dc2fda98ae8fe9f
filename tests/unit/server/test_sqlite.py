"""Transactions of our own server take turns, and none waits for itself."""

import asyncio
import contextvars

import pytest
import sqlalchemy as sa
from sqlalchemy.exc import OperationalError

from mortal.server.sqlite import WaitingSqlite

COUNT = sa.text("select count(*) from rows")
INSERT = sa.text("insert into rows values (1)")
EMPTY = contextvars.Context()
"""That of another request."""


@pytest.fixture
async def database(tmp_path):
    """A database, and a function that makes sessions. Whoever has to wait gives up at once; with
    Prefect's settings that is after a minute."""
    config = WaitingSqlite(connection_url=f"sqlite+aiosqlite:///{tmp_path}/a.db")
    engine = await config.engine()
    sa.event.listen(
        engine.sync_engine, "connect", lambda opened, _: opened.execute("pragma busy_timeout = 0")
    )
    async with engine.begin() as connection:
        await connection.execute(sa.text("create table rows (number int)"))

    async def session():
        return await config.session(engine)

    yield config, session
    await engine.dispose()


async def test_a_transaction_begins_as_a_writer(database):
    config, session = database
    async with await session() as one, await session() as other:
        async with config.begin_transaction(one):
            await one.execute(COUNT)
            with pytest.raises(OperationalError, match="locked"):
                await asyncio.create_task(write(config, other), context=EMPTY)
        await write(config, other)


async def test_what_is_read_inside_of_a_transaction_does_not_wait_for_it(database):
    """As Prefect does to tell of a work queue that somebody has paused."""
    config, session = database
    async with await session() as one, config.begin_transaction(one):
        await one.execute(INSERT)
        async with await session() as reader:
            assert (await reader.execute(COUNT)).scalar() == 0
        async with await session() as reader, config.begin_transaction(reader):
            assert (await reader.execute(COUNT)).scalar() == 0
        await one.execute(INSERT)
    async with await session() as reader:
        assert (await reader.execute(COUNT)).scalar() == 2


async def test_a_task_that_a_transaction_has_started_takes_turns_later(database):
    config, session = database
    may_write = asyncio.Event()

    async def later():
        await may_write.wait()
        async with await session() as own, config.begin_transaction(own):
            await own.execute(COUNT)
            async with await session() as other:
                with pytest.raises(OperationalError, match="locked"):
                    await asyncio.create_task(write(config, other), context=EMPTY)

    async with await session() as one, config.begin_transaction(one):
        await one.execute(INSERT)
        started = asyncio.create_task(later())
    may_write.set()
    await started


async def write(config, session):
    async with config.begin_transaction(session):
        await session.execute(INSERT)
