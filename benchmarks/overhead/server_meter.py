"""What a run costs its Prefect server: CPU time, and bytes in the database."""

from __future__ import annotations

import contextlib
import sqlite3
from pathlib import Path
from typing import NamedTuple

import psutil

from mortal.server.files import DATABASE, server_home


class ServerStamp(NamedTuple):
    """The server at one moment."""

    cpu_s: float
    """CPU time of its processes."""
    resident_mb: float
    database_bytes: int
    """Pages in use."""


def server_stamp() -> ServerStamp:
    """Stamp this benchmark's server: between runs, its processes are our only children."""
    processes = psutil.Process().children(recursive=True)
    times = [process.cpu_times() for process in processes]
    return ServerStamp(
        cpu_s=sum(each.user + each.system for each in times),
        resident_mb=sum(process.memory_info().rss for process in processes) / 2**20,
        database_bytes=_database_bytes(),
    )


def largest_tables(number: int) -> dict[str, int]:
    """Bytes of the largest tables and indexes of the database, the largest first."""
    with _database() as database:
        rows = database.execute(
            "SELECT name, SUM(pgsize) FROM dbstat GROUP BY name ORDER BY 2 DESC LIMIT ?", (number,)
        )
        return {str(name): int(size) for name, size in rows}


def _database_bytes() -> int:
    with _database() as database:
        pages, free, size = (
            int(database.execute(f"PRAGMA {name}").fetchone()[0])
            for name in ("page_count", "freelist_count", "page_size")
        )
    return (pages - free) * size


def _database() -> contextlib.closing[sqlite3.Connection]:
    path: Path = server_home() / DATABASE
    return contextlib.closing(sqlite3.connect(f"{path.as_uri()}?mode=ro", uri=True))
