"""Prefect databases with all their tables. Prefect's migrations take some 9 s of a core, so they
run once for all tests, as they do once for all state directories of a user."""

import fcntl
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from mortal.server.database import SQLITE, VARIABLE
from mortal.server.tables import has_all_tables, kept_database

MAKE = """
import asyncio, sys
from pathlib import Path
from mortal.server.tables import make_tables
asyncio.run(make_tables(Path(sys.argv[1])))
"""


def put_database(path: Path) -> None:
    """Put an empty database at `path`; one that is there already stays."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.touch()
    kept = kept_database()
    kept.parent.mkdir(parents=True, exist_ok=True)
    with kept.with_suffix(".lock").open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not kept.exists():
            with tempfile.TemporaryDirectory() as home:
                make(Path(home) / "prefect.db")
    assert has_all_tables(path)


def make(path: Path) -> None:
    """Make a database at `path` with Prefect's migrations, in a process of its own: Prefect reads
    its settings when it is imported."""
    settings = {"PREFECT_HOME": str(path.parent), VARIABLE: f"{SQLITE}:///{path.absolute()}"}
    subprocess.run([sys.executable, "-c", MAKE, path], env={**os.environ, **settings}, check=True)
