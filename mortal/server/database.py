"""The database in which our own Prefect server keeps its history.

It is SQLite, or PostgreSQL if an environment variable names one. Prefect's own vacuum removes flow
runs that ended long ago. SQLite then reuses the space; its file does not shrink.
"""

from __future__ import annotations

import os
import re
from pathlib import Path

from mortal_steps.errors import ServerError

DATABASE = "prefect.db"
VARIABLE = "PREFECT_SERVER_DATABASE_CONNECTION_URL"
EARLIER_VARIABLE = "PREFECT_API_DATABASE_CONNECTION_URL"
"""Prefect's earlier name for the same variable."""
SQLITE, POSTGRESQL = "sqlite+aiosqlite", "postgresql+asyncpg"


def database_url(home: Path) -> str:
    """The URL of the database of the server whose files are in `home`, in the form that Prefect
    takes.

    Raises `ServerError` if an environment variable names a database that Prefect cannot use.
    """
    for variable in (VARIABLE, EARLIER_VARIABLE):
        named = os.environ.get(variable)
        if named:
            if named.partition("://")[0] not in (SQLITE, POSTGRESQL):
                raise ServerError(
                    f"{variable} = {without_password(named)}: for PostgreSQL, write "
                    f"{POSTGRESQL}://USER:PASSWORD@HOST/DATABASE; without the variable, the "
                    "history is kept in SQLite"
                )
            return named
    return own_sqlite(home)


def own_sqlite(home: Path) -> str:
    """The URL of the database that a server uses by default."""
    return f"{SQLITE}:///{home / DATABASE}"


def without_password(url: str) -> str:
    """The URL without its password and its query, so that it may be shown and stored."""
    return re.sub(r"(://[^:@/]*):.*@", r"\1@", url).partition("?")[0]


def sqlite_file(url: str) -> Path | None:
    """The file of an SQLite database; None for PostgreSQL."""
    scheme, _, place = url.partition(":///")
    return Path(place.partition("?")[0]) if scheme == SQLITE else None
