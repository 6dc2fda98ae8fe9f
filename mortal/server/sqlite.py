"""Makes the writers of our own Prefect server wait for each other in SQLite.

Prefect begins most of its transactions as readers. If such a transaction wants to write while
another one is writing, SQLite refuses at once with "database is locked", because the data that it
has read may be changing. A request is then answered with 503, and Prefect's client tries again two
seconds later; a service drops what it was doing. While a run records its stages several times a
second, this happens to about every other request that reads and then writes.
"""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from contextvars import ContextVar
from dataclasses import dataclass

import sqlalchemy as sa
from prefect.server.database.configurations import AioSqliteConfiguration
from prefect.server.database.dependencies import MODELS_DEPENDENCIES
from sqlalchemy.ext.asyncio import AsyncSession, AsyncSessionTransaction


@dataclass(slots=True)
class _Writer:
    """A transaction that is to begin as a writer."""

    begun: bool = False
    over: bool = False


_writer: ContextVar[_Writer | None] = ContextVar("_writer", default=None)
"""That of the transaction around the running code."""


class WaitingSqlite(AioSqliteConfiguration):
    """Prefect's SQLite with transactions that begin as writers (BEGIN IMMEDIATE). They wait for
    each other for up to a minute, which is the limit that Prefect sets for SQLite.

    Prefect opens some sessions inside of another one's transaction, to read what an event is to
    say. As a writer such a session would wait for the transaction around it, and block the whole
    server meanwhile. So it begins as Prefect has it begin.
    """

    @asynccontextmanager
    async def begin_transaction(
        self, session: AsyncSession, with_for_update: bool = False
    ) -> AsyncGenerator[AsyncSessionTransaction, None]:
        around = _writer.get()
        if around is not None and not around.over:
            async with super().begin_transaction(session, with_for_update) as transaction:
                yield transaction
            return
        writer = _Writer()
        token = _writer.set(writer)
        try:
            async with super().begin_transaction(session, with_for_update=False) as transaction:
                yield transaction
        finally:
            writer.over = True  # for tasks that were started inside
            _writer.reset(token)

    def begin_sqlite_stmt(self, conn: sa.Connection) -> None:
        writer = _writer.get()
        if writer is None or writer.begun or writer.over:
            super().begin_sqlite_stmt(conn)
            return
        writer.begun = True
        conn.exec_driver_sql("BEGIN IMMEDIATE")


def use_waiting_sqlite(connection_url: str) -> None:
    """Make Prefect's server in this process use `WaitingSqlite`."""
    MODELS_DEPENDENCIES["database_config"] = WaitingSqlite(connection_url=connection_url)
