"""Makes our own Prefect server take turns when it writes to SQLite.

Prefect begins most of its transactions as readers. If such a transaction wants to write while
another one is writing, SQLite refuses at once with "database is locked", because the data that it
has read may be changing. A request is then answered with 503, and Prefect's client tries again two
seconds later; a service drops what it was doing. While a run records its stages several times a
second, this happens to about every other request that reads and then writes.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

from prefect.server.database.configurations import AioSqliteConfiguration
from prefect.server.database.dependencies import MODELS_DEPENDENCIES
from sqlalchemy.ext.asyncio import AsyncSession, AsyncSessionTransaction


class WaitingSqlite(AioSqliteConfiguration):
    """Prefect's SQLite with transactions that begin as writers (BEGIN IMMEDIATE). They wait for
    each other for up to a minute, which is the limit that Prefect sets for SQLite."""

    @asynccontextmanager
    async def begin_transaction(
        self, session: AsyncSession, with_for_update: bool = False
    ) -> AsyncGenerator[AsyncSessionTransaction, None]:
        """See `AioSqliteConfiguration.begin_transaction`."""
        async with super().begin_transaction(session, with_for_update=True) as transaction:
            yield transaction


def use_waiting_sqlite(connection_url: str) -> None:
    """Make Prefect's server in this process use `WaitingSqlite`."""
    MODELS_DEPENDENCIES["database_config"] = WaitingSqlite(connection_url=connection_url)
