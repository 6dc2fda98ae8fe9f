"""Prefect databases with all their tables. Prefect's migrations take some 9 s of a core, so they
run once for all tests of one version of Prefect."""

import fcntl
import os
import shutil
import subprocess
import sys
import tempfile
from importlib.metadata import version
from pathlib import Path

from mortal.server.files import SQLITE, VARIABLE
from mortal.server.process import has_tables

MAKE = """
import asyncio, sys
from pathlib import Path
from mortal.server.process import make_tables
asyncio.run(make_tables(Path(sys.argv[1])))
"""
KEPT = Path(tempfile.gettempdir()) / f"mortal-tests-{os.getuid()}" / f"prefect-{version('prefect')}"


def put_database(path: Path) -> None:
    """Put an empty database at `path`."""
    path.parent.mkdir(parents=True, exist_ok=True)
    KEPT.mkdir(parents=True, exist_ok=True)
    kept = KEPT / "prefect.db"
    with (KEPT / "lock").open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not kept.exists():
            with tempfile.TemporaryDirectory(dir=KEPT) as home:
                made = Path(home) / "prefect.db"
                make(made)
                made.rename(kept)
    shutil.copyfile(kept, path)
    assert has_tables(path)


def make(path: Path) -> None:
    """Make a database at `path` with Prefect's migrations, in a process of its own: Prefect reads
    its settings when it is imported."""
    settings = {"PREFECT_HOME": str(path.parent), VARIABLE: f"{SQLITE}:///{path.absolute()}"}
    subprocess.run([sys.executable, "-c", MAKE, path], env={**os.environ, **settings}, check=True)
