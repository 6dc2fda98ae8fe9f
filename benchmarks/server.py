"""A Prefect server for one benchmark, with nobody else's load on it."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

from mortal.driver import QUIET_PREFECT
from mortal.server.files import Server
from mortal.server.select_server import prefect_server


@contextlib.contextmanager
def own_server(folder: Path) -> Iterator[Server]:
    """Yield a server as `mortal` would start it, with its files in `folder`, for all children.

    Sets the environment of the runs: quiet, offline, one thread unless OMP_NUM_THREADS says more.
    """
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))
    for name, value in {**QUIET_PREFECT, "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"}.items():
        os.environ.setdefault(name, value)
    os.environ.pop("PREFECT_API_URL", None)
    os.environ["MORTAL_STATE_DIR"] = str(folder / "state")
    with prefect_server(print) as server:
        yield server
