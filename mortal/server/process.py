"""Our Prefect server from inside: `python -m mortal.server.process HOME PORT [--keep]`.

It listens on loopback, says where in server.json, and ends when no process wants it any more
(mortal/server/files.py), however those have ended.
"""

from __future__ import annotations

import asyncio
import fcntl
import os
import socket
import sqlite3
import sys
import threading
import time
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import IO

import uvicorn

from mortal.server.database import (
    EARLIER_VARIABLE,
    VARIABLE,
    database_url,
    give_back_space,
    sqlite_file,
    without_password,
)
from mortal.server.files import (
    END_S,
    FOLDER_IN_USE,
    PORT_IN_USE,
    ServerRecord,
    opened,
    read_record,
    remove_record,
    try_lock,
    write_record,
)
from mortal.server.foreign_pages import OwnPagesOnly
from mortal.server.tables import has_all_tables
from mortal_steps.system.heavy_imports import heavy_imports
from mortal_steps.system.processes import ProcessId

HOST = "127.0.0.1"
LOOK_EVERY_S = 0.25
"""Between two looks whether anybody wants the server."""
DEAD_WITHIN_S = 2.0
"""How long one that was killed may take to be gone."""
CLOSE_S = 2.0
"""How long connections have to end."""

SERVER_SETTINGS = {
    "PREFECT_SERVER_ANALYTICS_ENABLED": "false",
    # The recorder writes task runs in batches; its defaults cost three times the CPU per task run.
    "PREFECT_SERVER_SERVICES_TASK_RUN_RECORDER_READ_BATCH_SIZE": "50",
    "PREFECT_SERVER_SERVICES_TASK_RUN_RECORDER_BATCH_SIZE": "50",
    "PREFECT_SERVER_SERVICES_TASK_RUN_RECORDER_FLUSH_INTERVAL": "1",
    # Half of what is left: a copy of every event, for the event feed alone. Runs, states, logs and
    # artifacts are kept without it, and automations hear events as they come.
    "PREFECT_SERVER_SERVICES_EVENT_PERSISTER_ENABLED": "false",
    # A power cut takes server, worker and run together. A server that comes back must still know
    # whom it expected a heartbeat from, to mark that run Crashed; by default it forgets in a
    # minute, and the run stays Running for ever. It may have been off for a holiday.
    "PREFECT_SERVER_EVENTS_EXPIRED_BUCKET_BUFFER": "P30D",
    # And that it crashed must reach the automations, though the server has forgotten what came
    # before that.
    "PREFECT_SERVER_EVENTS_CAUSAL_ORDERING": "mortal.server.ordering",
    # Which run has the place of a deployment with a limit. By default only the memory of the server
    # says so, and one that is started again cancels whoever comes to renew a lease.
    "PREFECT_SERVER_CONCURRENCY_LEASE_STORAGE": (
        "prefect.server.concurrency.lease_storage.filesystem"
    ),
    # What `prefect deployment run --watch` and `prefect flow-run watch` print of a run.
    "PREFECT_SERVER_LOGS_STREAM_OUT_ENABLED": "true",
    "PREFECT_SERVER_LOGS_STREAM_PUBLISHING_ENABLED": "true",
    "PREFECT_LOGGING_SERVER_LEVEL": "WARNING",
}

RETENTION = {
    # Flow runs that ended 90 days ago go, with their task runs, logs and artifacts; by default
    # Prefect keeps them for ever. Their run directories stay.
    "PREFECT_SERVER_SERVICES_DB_VACUUM_ENABLED": "events,flow_runs",
    "PREFECT_SERVER_SERVICES_DB_VACUUM_RETENTION_PERIOD": str(90 * 24 * 3600),
}
"""What the user may set otherwise."""

BLOCKS_LATER = {
    "PREFECT_SERVER_REGISTER_BLOCKS_ON_START": "false",
    # Else Prefect would remember that it has done it.
    "PREFECT_SERVER_MEMOIZE_BLOCK_AUTO_REGISTRATION": "false",
}
"""mortal/server/blocks.py registers the types of blocks once the server has served for a while."""

ORIGINS = "PREFECT_SERVER_CORS_ALLOWED_ORIGINS"
MIGRATES = "PREFECT_SERVER_DATABASE_MIGRATE_ON_START"


def main() -> None:
    """Serve until nobody wants the server, or SIGTERM."""
    home, port, keep = Path(sys.argv[1]), int(sys.argv[2]), "--keep" in sys.argv[3:]
    with socket.socket() as listener, opened(home / "server.lock") as only:
        _be_the_only_one(only)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind((HOST, port))
        except OSError as error:
            sys.stderr.write(f"{HOST}:{port}: {error}\n")
            sys.exit(PORT_IN_USE)
        address = f"http://{HOST}:{listener.getsockname()[1]}"
        process = ProcessId.of(os.getpid())
        database = database_url(home)
        record = ServerRecord(
            api_url=f"{address}/api",
            process=process,
            keep=keep,
            database=without_password(database),
        )
        write_record(home, record)
        wanted = Wanted(home, process)
        try:
            _serve(listener, home, address, database, wanted)
        finally:
            remove_record(home, process)


def _be_the_only_one(lock: IO[str]) -> None:
    """Hold the lock, or exit: the database is not for two servers."""
    deadline = time.monotonic() + DEAD_WITHIN_S
    while not try_lock(lock, fcntl.LOCK_EX):
        if time.monotonic() > deadline:
            sys.stderr.write(f"{lock.name} is held by another server\n")
            sys.exit(FOLDER_IN_USE)
        time.sleep(LOOK_EVERY_S)


class Wanted:
    """Watches whether anybody wants the server, from its first moment on."""

    def __init__(self, home: Path, process: ProcessId) -> None:
        self._home = home
        self._process = process
        self._users = opened(home / "users.lock")
        self._server: uvicorn.Server | None = None
        threading.Thread(target=self._watch, name="wanted", daemon=True).start()

    def serves(self, server: uvicorn.Server) -> None:
        """This is what to end, in order."""
        self._server = server

    def _watch(self) -> None:
        while not self._unwanted():
            time.sleep(LOOK_EVERY_S)
        if self._server is not None and self._server.started:
            self._server.should_exit = True
            time.sleep(END_S)
        # Also in the middle of a migration, which is a transaction of the database.
        remove_record(self._home, self._process)
        os._exit(0)

    def _unwanted(self) -> bool:
        """Whether the lock could be had; it is held from then on, so that nobody comes to want a
        server that is about to end."""
        if not try_lock(self._users, fcntl.LOCK_EX):
            return False
        record = read_record(self._home)
        if record is not None and record.keep:
            fcntl.flock(self._users, fcntl.LOCK_UN)
            return False
        return True


class Serving(uvicorn.Server):
    """uvicorn's server, with something else to do beside it."""

    def __init__(
        self, config: uvicorn.Config, beside: Callable[[], Coroutine[None, None, None]]
    ) -> None:
        super().__init__(config)
        self._beside = beside

    async def serve(self, sockets: list[socket.socket] | None = None) -> None:
        """See `uvicorn.Server.serve`."""
        beside = asyncio.create_task(self._beside())
        try:
            await super().serve(sockets)
        finally:
            beside.cancel()


def _serve(
    listener: socket.socket, home: Path, address: str, database: str, wanted: Wanted
) -> None:
    origins = _origins(address)
    os.environ.pop(EARLIER_VARIABLE, None)
    os.environ.update(SERVER_SETTINGS | BLOCKS_LATER)
    if _prepare(database):  # to find nothing to do, Prefect would import a hundred migrations
        os.environ[MIGRATES] = "false"
    os.environ.update(
        {
            "PREFECT_HOME": str(home),
            VARIABLE: database,
            "PREFECT_UI_API_URL": f"{address}/api",
            ORIGINS: ",".join(origins),
        }
    )
    for name, value in RETENTION.items():
        os.environ.setdefault(name, value)
    with heavy_imports():
        # Prefect reads its settings when it is imported.
        from prefect.server.api.server import create_app
        from prefect.settings import get_current_settings

        from mortal.server.blocks import register_block_types
        from mortal.server.sqlite import use_waiting_sqlite
    if sqlite_file(database) is not None:
        use_waiting_sqlite(database)
    with heavy_imports():  # it collects garbage, and need not look through all that is imported
        app = create_app(final=True)
    api = get_current_settings().server.api
    config = uvicorn.Config(
        OwnPagesOnly(app, origins),
        timeout_keep_alive=api.keepalive_timeout,
        timeout_graceful_shutdown=int(CLOSE_S),
        ws_ping_interval=api.websocket_ping_interval,
        ws_ping_timeout=api.websocket_ping_timeout,
        log_level="warning",
    )
    server = Serving(config, register_block_types)
    wanted.serves(server)
    server.run(sockets=[listener])


def _prepare(database: str) -> bool:
    """Make the file of an SQLite database smaller, where that is worth it; whether it has all its
    tables."""
    path = sqlite_file(database)
    if path is None:
        return False
    try:
        give_back_space(path)
    except sqlite3.Error as error:  # a full disk, say; the server starts with the file as it is
        sys.stderr.write(f"{path} stays as large as it is: {error}\n")
    try:
        return has_all_tables(path)
    except sqlite3.Error as error:  # Prefect's migrations wait longer, and say more
        sys.stderr.write(f"whether {path} has all its tables is for Prefect to see: {error}\n")
        return False


def _origins(address: str) -> list[str]:
    """Whose pages may use the server: its own, and those that the user names."""
    named = [each.strip() for each in os.environ.get(ORIGINS, "").split(",")]
    return [address, address.replace(HOST, "localhost"), *filter(None, named)]


if __name__ == "__main__":
    main()
