"""Make the tables of a new Prefect database in SQLite once per user, and copy them from then on.

Prefect makes them with a hundred migrations, one after another, and then registers its types of
blocks: some 12 s of CPU time. The first server of a user keeps a copy of the outcome in the user's
cache; a server whose database is empty starts with that copy. The name of the copy has the version
of the installed Prefect, so another version makes its own.
"""

from __future__ import annotations

import contextlib
import os
import sqlite3
import sys
from contextlib import closing
from importlib.metadata import version
from pathlib import Path


def kept_database() -> Path:
    """Return the path of the copy that fits the installed Prefect, without importing Prefect."""
    cache = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return Path(cache) / "mortal" / f"prefect-{version('prefect')}.db"


def is_empty(path: Path) -> bool:
    """Tell whether the database has no tables yet. Raises `sqlite3.Error`."""
    with closing(sqlite3.connect(path)) as database:
        return not database.execute("select count(*) from sqlite_master").fetchone()[0]


def has_all_tables(path: Path) -> bool:
    """Tell whether the database needs no migration; an empty one gets the kept tables first.

    False if no copy is kept, or if the database is of another version. Raises `sqlite3.Error`.
    """
    kept = kept_database()
    if not (path.is_file() and kept.is_file()):
        return False
    with (
        closing(sqlite3.connect(f"{kept.as_uri()}?mode=ro", uri=True)) as source,
        closing(sqlite3.connect(path)) as database,
    ):
        if not database.execute("select count(*) from sqlite_master").fetchone()[0]:
            source.backup(database)  # one transaction
        return _revision(database) == _revision(source) is not None


async def make_tables(path: Path) -> None:
    """Let Prefect, whose settings name the empty database at `path`, make its tables; keep a copy.

    A copy that cannot be written is reported on stderr: the next state directory waits again.
    """
    from prefect.server.database import provide_database_interface
    from prefect.server.models.block_registration import run_block_auto_registration

    interface = provide_database_interface()
    await interface.create_db()
    async with await interface.session() as session:
        await run_block_auto_registration(session=session)
    await (await interface.engine()).dispose()
    kept = kept_database()
    unfinished = kept.with_suffix(f".{os.getpid()}")
    try:
        kept.parent.mkdir(parents=True, exist_ok=True)
        with closing(sqlite3.connect(path)) as database:
            database.execute("vacuum into ?", (str(unfinished),))
        unfinished.replace(kept)
    except (OSError, sqlite3.Error) as error:
        with contextlib.suppress(OSError):
            unfinished.unlink()
        sys.stderr.write(f"{kept} could not be written: {error}\n")


def _revision(database: sqlite3.Connection) -> str | None:
    try:
        found = database.execute("select version_num from alembic_version").fetchall()
    except sqlite3.OperationalError:  # no such table
        return None
    return found[0][0] if len(found) == 1 else None
