"""Where our own Prefect server keeps its history: SQLite, or the PostgreSQL that a variable names.

Prefect's own vacuum removes flow runs that ended long ago. SQLite then fills the room again, but
its file stays as large as it ever was, until a server that starts gives back what is free.
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
"""Prefect's earlier name for the same."""
SQLITE, POSTGRESQL = "sqlite+aiosqlite", "postgresql+asyncpg"

WORTH_IT = 64 * 2**20
"""Bytes that have to be free for a file to be made smaller, and more than half of it."""


@dataclass(frozen=True, kw_only=True, slots=True)
class FileUse:
    """How large an SQLite file is."""

    num_bytes: int
    num_free: int
    """Bytes of it that hold nothing."""

    @property
    def is_mostly_free(self) -> bool:
        """Whether it is worth the time to make the file smaller."""
        return self.num_free > max(WORTH_IT, self.num_bytes / 2)


def database_url(home: Path) -> str:
    """The database of the server whose files are in `home`, as Prefect names it.

    Raises `ServerError` for a variable that names none that Prefect can use.
    """
    for variable in (VARIABLE, EARLIER_VARIABLE):
        named = os.environ.get(variable)
        if named:
            if named.partition("://")[0] not in (SQLITE, POSTGRESQL):
                raise ServerError(
                    f"{variable} = {without_password(named)}: Prefect reaches PostgreSQL by "
                    f"{POSTGRESQL}://USER:PASSWORD@HOST/DATABASE; without the variable the "
                    "history is kept in SQLite"
                )
            return named
    return own_sqlite(home)


def own_sqlite(home: Path) -> str:
    """The database of a server that nobody told of another one."""
    return f"{SQLITE}:///{home / DATABASE}"


def without_password(url: str) -> str:
    """The same to show and to keep; who knows it cannot log in with it."""
    return re.sub(r"(://[^:@/]*):.*@", r"\1@", url).partition("?")[0]


def sqlite_file(url: str) -> Path | None:
    """The file of an SQLite database; None for PostgreSQL."""
    scheme, _, place = url.partition(":///")
    return Path(place.partition("?")[0]) if scheme == SQLITE else None


def file_use(path: Path) -> FileUse:
    """How large the file of an SQLite database is. Raises `sqlite3.Error`."""
    with closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as database:
        page = int(database.execute("pragma page_size").fetchone()[0])
        pages = int(database.execute("pragma page_count").fetchone()[0])
        free = int(database.execute("pragma freelist_count").fetchone()[0])
    return FileUse(num_bytes=page * pages, num_free=page * free)


def give_back_space(path: Path) -> bool:
    """Make the file smaller if that is worth it; whether it was. For a server that starts, which
    has it for itself. A kill in the middle changes nothing. Raises `sqlite3.Error`."""
    if not file_use(path).is_mostly_free:
        return False
    with closing(sqlite3.connect(path, timeout=0, isolation_level=None)) as database:
        database.execute("vacuum")
        database.execute("pragma wal_checkpoint(truncate)")
    return True
