"""Makes the tables of a new Prefect database in SQLite in one transaction.

Prefect makes them with a hundred migrations, one after another, which take about 9 s of CPU time.
Their outcome is in prefect.sql, together with the digest of these migrations. If another version of
Prefect with other migrations is installed, the file is not used, and Prefect makes the tables.

`python -m mortal.server.tables` prints the content of the file for the installed migrations.
"""

from __future__ import annotations

import hashlib
import importlib.util
import os
import re
import sqlite3
import subprocess
import sys
import tempfile
from contextlib import closing
from pathlib import Path

from mortal.server.database import SQLITE, VARIABLE

OUTCOME = Path(__file__).with_name("prefect.sql")
HEADER = """\
-- What the migrations of Prefect (Apache License 2.0) make of an empty SQLite database. Written by
-- `make prefect-sql`.
-- migrations: {digest}
"""
MIGRATIONS = Path("server", "database", "_migrations", "versions", "sqlite")
"""Path of the migrations in Prefect's package."""
MIGRATE = """
import asyncio
from prefect.server.database import provide_database_interface
asyncio.run(provide_database_interface().create_db())
"""


def has_all_tables(path: Path) -> bool:
    """Whether the database has every table that the installed Prefect needs, so that no migration
    has to run. An empty database gets the tables first.

    False if only Prefect's migrations can tell. Raises `sqlite3.Error`.
    """
    outcome = OUTCOME.read_text(encoding="utf-8")
    if not path.is_file() or f"-- migrations: {migrations_digest()}\n" not in outcome:
        return False
    with closing(sqlite3.connect(path, isolation_level=None)) as database:
        if not database.execute("select count(*) from sqlite_master").fetchone()[0]:
            database.execute("pragma journal_mode = wal")  # as Prefect sets it
            database.executescript(outcome)  # one transaction
        return _revision(database) == _revision_of(outcome)


def migrations_digest() -> str | None:
    """sha256 of the installed Prefect's migrations, found without importing Prefect; None if there
    are none."""
    found = importlib.util.find_spec("prefect")
    if found is None or found.origin is None:
        return None
    digest = hashlib.sha256()
    for path in sorted((Path(found.origin).parent / MIGRATIONS).glob("*.py")):
        content = path.read_bytes()
        digest.update(f"{path.name} {len(content)}\n".encode() + content)
    return digest.hexdigest()


def migrate(path: Path) -> None:
    """Make a database at `path` with Prefect's migrations. They run in a process of their own,
    because Prefect reads its settings when it is imported."""
    with tempfile.TemporaryDirectory() as home:
        settings = {"PREFECT_HOME": home, VARIABLE: f"{SQLITE}:///{path.absolute()}"}
        subprocess.run([sys.executable, "-c", MIGRATE], env={**os.environ, **settings}, check=True)


def _revision(database: sqlite3.Connection) -> str | None:
    try:
        found = database.execute("select version_num from alembic_version").fetchall()
    except sqlite3.OperationalError:  # no such table
        return None
    return found[0][0] if len(found) == 1 else None


def _revision_of(outcome: str) -> str:
    found = re.search(r"INSERT INTO \"alembic_version\" VALUES\('(\w+)'\);", outcome)
    assert found is not None  # prefect.sql is ours
    return found[1]


def main() -> None:
    """Print the content of prefect.sql."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "prefect.db"
        migrate(path)
        with closing(sqlite3.connect(path)) as database:
            sys.stdout.write(HEADER.format(digest=migrations_digest()))
            sys.stdout.writelines(f"{line}\n" for line in database.iterdump())


if __name__ == "__main__":
    main()
