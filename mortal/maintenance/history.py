"""Checks of `mortal doctor` on the database of MORTAL's own Prefect server."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

from mortal.maintenance import Finding, ok, problem, warning
from mortal.server.database import (
    VARIABLE,
    database_url,
    sqlite_file,
    without_password,
)
from mortal.server.files import living_server, server_home
from mortal_steps.errors import ServerError
from mortal_steps.report.units import byte_size

LARGE = 2e9
"""Bytes above which SQLite may be slow; PostgreSQL has no such limit."""
PATIENCE_S = 5.0


def look_at_database() -> Iterator[Finding]:
    """Check where the history is, how large it is, and whether the running server uses it."""
    home = server_home()
    try:
        url = database_url(home)
    except ServerError as error:
        yield problem("database", str(error))
        return
    path = sqlite_file(url)
    yield asyncio.run(_postgresql(url)) if path is None else _sqlite(path)
    running = living_server(home)
    if running is not None and running.database != without_password(url):
        told = f"the server that runs has its history in {running.database}, and {VARIABLE} asks "
        yield problem("database", f"{told}for {without_password(url)}; end that server")


def _sqlite(path: Path) -> Finding:
    try:
        return sqlite_size(path, path.stat().st_size)
    except OSError as error:
        return problem("database", f"SQLite, {path}: {error}")


def sqlite_size(path: Path, num_bytes: int) -> Finding:
    """Check whether a file is as large as it may be."""
    told = f"SQLite, {byte_size(num_bytes)} ({path})"
    if num_bytes > LARGE:
        advice = f"keep flow runs for a shorter time, or name PostgreSQL in {VARIABLE}"
        return warning("database", f"{told}; {advice}")
    return ok("database", told)


async def _postgresql(url: str) -> Finding:
    import asyncpg
    from sqlalchemy import text
    from sqlalchemy.exc import SQLAlchemyError
    from sqlalchemy.ext.asyncio import create_async_engine

    shown = without_password(url)
    engine = create_async_engine(url, connect_args={"timeout": PATIENCE_S})
    try:
        async with engine.connect() as connection:
            asked = text("select pg_database_size(current_database())")
            size = (await connection.execute(asked)).scalar_one()
    except (OSError, TimeoutError, asyncpg.PostgresError, SQLAlchemyError) as error:
        return problem("database", f"{shown} does not answer: {error}")
    finally:
        await engine.dispose()
    return ok("database", f"PostgreSQL, {byte_size(size)} ({shown})")
