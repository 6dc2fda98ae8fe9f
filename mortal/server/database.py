"""The database in which our own Prefect server keeps its history.

It is SQLite, or PostgreSQL if an environment variable names one. Prefect's own vacuum removes flow
runs that ended long ago. SQLite then reuses the space, but its file never shrinks by itself; a
server that starts makes the file smaller.
"""

from __future__ import annotations

import os
import re
import sqlite3
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from mortal_steps.errors import ServerError

DATABASE = "prefect.db"
VARIABLE = "PREFECT_SERVER_DATABASE_CONNECTION_URL"
EARLIER_VARIABLE = "PREFECT_API_DATABASE_CONNECTION_URL"
"""Prefect's earlier name for the same variable."""
SQLITE, POSTGRESQL = "sqlite+aiosqlite", "postgresql+asyncpg"

WORTH_IT = 64 * 2**20
"""A file is made smaller only if more than this many bytes, and more than half of it, are free."""


@dataclass(frozen=True, kw_only=True, slots=True)
class FileUse:
    """How much space an SQLite file takes."""

    num_bytes: int
    """Size of the file."""
    num_free: int
    """How many of these bytes are unused."""

    @property
    def is_mostly_free(self) -> bool:
        """Whether making the file smaller is worth the time."""
        return self.num_free > max(WORTH_IT, self.num_bytes / 2)


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


def file_use(path: Path) -> FileUse:
    """How large the file of an SQLite database is. Raises `sqlite3.Error`."""
    place = f"{path.absolute().as_uri()}?mode=ro"
    with closing(sqlite3.connect(place, uri=True)) as database:
        page = int(database.execute("pragma page_size").fetchone()[0])
        pages = int(database.execute("pragma page_count").fetchone()[0])
        free = int(database.execute("pragma freelist_count").fetchone()[0])
    return FileUse(num_bytes=page * pages, num_free=page * free)


def give_back_space(path: Path) -> bool:
    """Make the file smaller if that is worth the time. Returns whether it was.

    A server does this when it starts, while nobody else uses the file. A kill in the middle does no
    harm. Raises `sqlite3.Error`.
    """
    if not file_use(path).is_mostly_free:
        return False
    with closing(sqlite3.connect(path, timeout=0, isolation_level=None)) as database:
        database.execute("vacuum")
        database.execute("pragma wal_checkpoint(truncate)")
    return True
