"""Prefect databases with all their tables: as `mortal` makes them, and as Prefect's migrations do,
which takes some 9 s of a core and is done once."""

import fcntl
import sqlite3
from contextlib import closing
from pathlib import Path

import prefect

from mortal.server.tables import has_all_tables, migrate
from tests.support.paths import ROOT

MIGRATED = ROOT / "build" / "tests" / f"prefect-{prefect.__version__}.db"


def put_database(path: Path) -> None:
    """An empty database at `path`; one that is there already stays."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.touch()
    assert has_all_tables(path)


def migrated_database() -> Path:
    """One that Prefect's migrations have made; to be read only."""
    MIGRATED.parent.mkdir(parents=True, exist_ok=True)
    with MIGRATED.with_suffix(".lock").open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not MIGRATED.exists():
            unfinished = MIGRATED.with_suffix(".unfinished")
            unfinished.unlink(missing_ok=True)
            migrate(unfinished)
            with closing(sqlite3.connect(unfinished)) as database:
                database.execute("pragma wal_checkpoint(truncate)")  # all of it in the one file
            unfinished.rename(MIGRATED)
    return MIGRATED
