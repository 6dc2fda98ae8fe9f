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
                settings = {"PREFECT_HOME": home, VARIABLE: f"{SQLITE}:///{made}"}
                make = [sys.executable, "-m", "prefect", "server", "database", "upgrade", "--yes"]
                subprocess.run(
                    make, env={**os.environ, **settings}, check=True, stdout=subprocess.DEVNULL
                )
                made.rename(kept)
    shutil.copyfile(kept, path)
