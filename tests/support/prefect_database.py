"""A Prefect database with all its tables, copied rather than made: Prefect's migrations take some
9 s of a core, and nearly every test that needs a server needs a new one."""

import contextlib
import fcntl
import os
import shutil
import sqlite3
import subprocess
import sys
from pathlib import Path

import prefect

from tests.support.paths import ROOT

MIGRATED = ROOT / "build" / "tests" / f"prefect-{prefect.__version__}.db"
MIGRATE = """
import asyncio
from prefect.server.database import provide_database_interface
asyncio.run(provide_database_interface().create_db())
"""


def put_database(path: Path) -> None:
    """An empty, migrated database at `path`; one that is there already stays."""
    MIGRATED.parent.mkdir(parents=True, exist_ok=True)
    with MIGRATED.with_suffix(".lock").open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not MIGRATED.exists():
            _make()
    path.parent.mkdir(parents=True, exist_ok=True)
    if not path.exists() or not path.stat().st_size:
        shutil.copyfile(MIGRATED, path)


def _make() -> None:
    """By a process of its own: Prefect reads its settings when it is imported."""
    unfinished = MIGRATED.with_suffix(".unfinished")
    unfinished.unlink(missing_ok=True)
    settings = {
        "PREFECT_HOME": str(MIGRATED.parent),
        "PREFECT_API_DATABASE_CONNECTION_URL": f"sqlite+aiosqlite:///{unfinished}",
    }
    subprocess.run([sys.executable, "-c", MIGRATE], env={**os.environ, **settings}, check=True)
    with contextlib.closing(sqlite3.connect(unfinished)) as database:
        database.execute("pragma wal_checkpoint(truncate)")  # all of it in the one file
    unfinished.rename(MIGRATED)
