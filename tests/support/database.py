"""What the Prefect servers of tests keep their history in: SQLite, or PostgreSQL on request.

    MORTAL_TEST_DATABASE=postgresql python -m pytest tests/e2e

starts a PostgreSQL cluster in a temporary folder; every server gets a database of its own there.
It needs the programs of Debian's package `postgresql`, and ends with the process that started it.
"""

import asyncio
import atexit
import contextlib
import os
import shutil
import signal
import socket
import sqlite3
import subprocess
import tempfile
import threading
import time
import uuid
from functools import cache
from pathlib import Path

import asyncpg

from mortal.server.files import DATABASE, POSTGRESQL, VARIABLE
from tests.support.prefect_database import put_database

ASKED_FOR = os.environ.get("MORTAL_TEST_DATABASE", "sqlite")
PASSWORD = "a:b/c"  # what a URL has to have quoted
QUOTED = "a%3Ab%2Fc"


def new_database(home):
    """Variables for a server whose files are in `home`; none for SQLite, which is there then, with
    all its tables."""
    if ASKED_FOR == "sqlite":
        put_database(home / DATABASE)
    return postgresql_database()


def postgresql_database():
    """Variables for the next server to start; none for SQLite."""
    if ASKED_FOR == "sqlite":
        return {}
    assert ASKED_FOR == "postgresql", f"MORTAL_TEST_DATABASE={ASKED_FOR}: sqlite or postgresql"
    name = f"prefect_{uuid.uuid4().hex[:8]}"
    asyncio.run(_execute(_cluster("postgres"), f"create database {name}"))
    return {VARIABLE: _cluster(name).replace("postgresql", POSTGRESQL, 1)}


def _cluster(database):
    return f"postgresql://mortal:{QUOTED}@127.0.0.1:{_port()}/{database}"


async def _execute(url, statement):
    connection = await asyncpg.connect(url)
    await connection.execute(statement)
    await connection.close()


@cache
def _port():
    """Return the port of a cluster that lives as long as this process."""
    folder = Path(tempfile.mkdtemp(prefix="mortal-postgresql-"))
    (folder / "password").write_text(PASSWORD)
    user = {}
    if os.geteuid() == 0:  # as whom PostgreSQL refuses to run
        user = {"user": "nobody", "group": "nogroup", "extra_groups": []}
        for path in (folder, folder / "password"):
            shutil.chown(path, "nobody", "nogroup")
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    init = ["--username=mortal", f"--pwfile={folder}/password", "--auth=scram-sha-256", "--no-sync"]
    with (folder / "log").open("w") as log:
        said = {"stdout": log, "stderr": log, "stdin": subprocess.DEVNULL, "cwd": folder, **user}
        subprocess.run([_program("initdb"), "-D", f"{folder}/data", *init], check=True, **said)
        server = subprocess.Popen(
            [
                *(_program("postgres"), "-D", f"{folder}/data", "-k", str(folder)),
                *("-h", "127.0.0.1", "-p", str(port), "-c", "fsync=off"),
            ],
            start_new_session=True,  # Ctrl-C is for the tests
            **said,
        )
    atexit.register(_end, server, folder)
    deadline = time.monotonic() + 60
    while "is ready to accept connections" not in (folder / "log").read_text():
        assert server.poll() is None and time.monotonic() < deadline, (folder / "log").read_text()
        time.sleep(0.05)
    return port


def _program(name):
    """Debian keeps them out of PATH."""
    versions = sorted(Path("/usr/lib/postgresql").glob(f"*/bin/{name}"))
    found = shutil.which(name) or (versions and str(versions[-1]))
    assert found, f"no {name}: install PostgreSQL, for example by `apt-get install postgresql`"
    return found


def _end(server, folder):
    server.send_signal(signal.SIGINT)  # a fast shutdown
    server.wait()
    shutil.rmtree(folder)


@contextlib.contextmanager
def writing_to(url, home):
    """Somebody else writes to a server's database half of the time, in transactions of 5 ms."""
    done = threading.Event()
    write = _write_to_postgresql if url else _write_to_sqlite
    writer = threading.Thread(target=write, args=(url or home / "prefect.db", done))
    writer.start()
    try:
        yield
    finally:
        done.set()
        writer.join()


def _write_to_sqlite(path, done):
    with contextlib.closing(sqlite3.connect(path, timeout=60, isolation_level=None)) as db:
        db.execute("create table noise (number int)")
        while not done.wait(0.005):
            db.execute("begin immediate")
            db.execute("insert into noise values (1)")
            time.sleep(0.005)
            db.execute("commit")
        db.execute("drop table noise")


def _write_to_postgresql(url, done):
    async def write():
        db = await asyncpg.connect(url.replace(POSTGRESQL, "postgresql", 1))
        await db.execute("create table noise (number int)")
        while not done.wait(0.005):
            async with db.transaction():
                await db.execute("insert into noise values (1)")
                await asyncio.sleep(0.005)
        await db.execute("drop table noise")
        await db.close()

    asyncio.run(write())
