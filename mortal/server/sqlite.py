"""How our own Prefect server writes to SQLite: whoever is going to write waits for its turn.

Prefect begins most of its transactions as readers. SQLite refuses such a transaction at once, with
"database is locked", if it comes to write while another one writes: what it has read may change
meanwhile. A request then answers 503, and Prefect's client asks again two seconds later; a service
drops what it was doing. While a run records its stages several times a second, about every other
request that reads and then writes meets that.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

from prefect.server.database.configurations import AioSqliteConfiguration
from prefect.server.database.dependencies import MODELS_DEPENDENCIES
from sqlalchemy.ext.asyncio import AsyncSession, AsyncSessionTransaction


class WaitingSqlite(AioSqliteConfiguration):
    """Prefect's, whose transactions begin as writers (BEGIN IMMEDIATE): they wait for each other
    for as long as Prefect lets SQLite wait, a minute."""

    @asynccontextmanager
    async def begin_transaction(
        self, session: AsyncSession, with_for_update: bool = False
    ) -> AsyncGenerator[AsyncSessionTransaction, None]:
        """See `AioSqliteConfiguration.begin_transaction`."""
        async with super().begin_transaction(session, with_for_update=True) as transaction:
            yield transaction


def use_waiting_sqlite(connection_url: str) -> None:
    """Let Prefect's server in this process write to its SQLite database in turn."""
    MODELS_DEPENDENCIES["database_config"] = WaitingSqlite(connection_url=connection_url)
