"""The process of our Prefect server: `python -m mortal.server.process HOME PORT`.

It listens on loopback, writes its address to server.json, and ends when no process needs it any
more (mortal/server/files.py), in whatever way those processes have ended.
"""

import fcntl
import os
import socket
import sys
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import IO
from urllib.parse import urlsplit

import uvicorn
from starlette.datastructures import Headers
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Receive, Scope, Send

from mortal.server.files import (
    END_S,
    FOLDER_IN_USE,
    PORT_IN_USE,
    SQLITE,
    VARIABLE,
    ServerRecord,
    database_url,
    opened,
    remove_record,
    try_lock,
    without_password,
    write_record,
)
from mortal_steps.system.imports import imports_without_gc
from mortal_steps.system.processes import ProcessId

ANY = "*"
POLICY_VIOLATION = 1008
"""WebSocket's code for a refusal."""


class OwnPagesOnly:
    """ASGI middleware that refuses requests from pages not at one of the `origins`: every local
    browser can reach loopback. A browser sends Origin or Sec-Fetch-Site, for WebSockets, too, which
    CORS does not cover. Any client has to address one of the origins' hosts: a site's name may have
    been made to resolve to 127.0.0.1."""

    def __init__(self, app: ASGIApp, origins: Sequence[str]) -> None:
        self._app = app
        self._origins = frozenset(origins)
        self._hosts = frozenset(urlsplit(origin).hostname for origin in origins)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one request, one WebSocket, or the server's start and end."""
        if scope["type"] not in ("http", "websocket") or self._is_own(Headers(scope=scope)):
            await self._app(scope, receive, send)
        elif scope["type"] == "websocket":
            await send({"type": "websocket.close", "code": POLICY_VIOLATION})
        else:
            refusal = PlainTextResponse(
                "mortal's server answers only its own pages; name others in "
                "PREFECT_SERVER_CORS_ALLOWED_ORIGINS before you start it\n",
                status_code=403,
            )
            await refusal(scope, receive, send)

    def _is_own(self, headers: Headers) -> bool:
        if ANY in self._origins:
            return True
        if urlsplit(f"//{headers.get('host', '')}").hostname not in self._hosts:
            return False
        origin = headers.get("origin")
        if origin is not None:
            return origin in self._origins
        # Other sites may link to these pages, but not embed them as frames, pictures or scripts.
        elsewhere = headers.get("sec-fetch-site") in ("cross-site", "same-site")
        return not elsewhere or headers.get("sec-fetch-dest") == "document"


HOST = "127.0.0.1"
LOOK_EVERY_S = 0.25
"""Seconds between two checks whether anybody needs the server."""
DEAD_WITHIN_S = 2.0
"""Seconds that a server which was killed may take to end."""
CLOSE_S = 2.0
"""Seconds that connections may take to close."""

SERVER_SETTINGS = {
    "PREFECT_SERVER_ANALYTICS_ENABLED": "false",
    # The recorder writes task runs in batches; with its defaults, each takes three times the CPU.
    "PREFECT_SERVER_SERVICES_TASK_RUN_RECORDER_READ_BATCH_SIZE": "50",
    "PREFECT_SERVER_SERVICES_TASK_RUN_RECORDER_BATCH_SIZE": "50",
    "PREFECT_SERVER_SERVICES_TASK_RUN_RECORDER_FLUSH_INTERVAL": "1",
    # The persister takes half of the remaining CPU. It copies every event, which only the event
    # feed reads. Runs, states, logs and artifacts are kept without it, and automations receive
    # events directly.
    "PREFECT_SERVER_SERVICES_EVENT_PERSISTER_ENABLED": "false",
    # A power cut ends server, worker and run together. A server that comes back must still know
    # which runs owe it a heartbeat, to mark them Crashed. By default it forgets that within a
    # minute, and such a run stays Running for ever. The server may have been off for weeks.
    "PREFECT_SERVER_EVENTS_EXPIRED_BUCKET_BUFFER": "P30D",
    # The automations must learn of that crash, although the server has forgotten the events before
    # it.
    "PREFECT_SERVER_EVENTS_CAUSAL_ORDERING": "mortal.server.ordering",
    # Where the server remembers which run occupies a deployment with a limit. By default it does so
    # in memory only, and a server that was restarted cancels every run that renews its lease.
    "PREFECT_SERVER_CONCURRENCY_LEASE_STORAGE": (
        "prefect.server.concurrency.lease_storage.filesystem"
    ),
    # A run that has a place has an hour to begin. A start that takes longer loses it to a run that
    # waits, and is cancelled for good; by default after five minutes.
    "PREFECT_SERVER_CONCURRENCY_INITIAL_DEPLOYMENT_LEASE_DURATION": "3600",
    # Both are needed for the logs that `prefect deployment run --watch` and `prefect flow-run
    # watch` print.
    "PREFECT_SERVER_LOGS_STREAM_OUT_ENABLED": "true",
    "PREFECT_SERVER_LOGS_STREAM_PUBLISHING_ENABLED": "true",
    "PREFECT_LOGGING_SERVER_LEVEL": "WARNING",
}

RETENTION = {
    # Flow runs that ended more than 90 days ago are removed, with their task runs, logs and
    # artifacts. By default, Prefect keeps them for ever. Run directories are not touched.
    "PREFECT_SERVER_SERVICES_DB_VACUUM_ENABLED": "events,flow_runs",
    "PREFECT_SERVER_SERVICES_DB_VACUUM_RETENTION_PERIOD": str(90 * 24 * 3600),
}
"""Settings that the user may override."""

ORIGINS = "PREFECT_SERVER_CORS_ALLOWED_ORIGINS"


def main() -> None:
    """Serve until nobody needs the server, or until SIGTERM."""
    home, port = Path(sys.argv[1]), int(sys.argv[2])
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
            database=without_password(database),
        )
        write_record(home, record)
        wanted = Wanted(home, process)
        try:
            _serve(listener, home, address, database, wanted)
        finally:
            remove_record(home, process)


def _be_the_only_one(lock: IO[str]) -> None:
    """Take the lock, or exit: two servers must not use the same database."""
    deadline = time.monotonic() + DEAD_WITHIN_S
    while not try_lock(lock, fcntl.LOCK_EX):
        if time.monotonic() > deadline:
            sys.stderr.write(f"{lock.name} is held by another server\n")
            sys.exit(FOLDER_IN_USE)
        time.sleep(LOOK_EVERY_S)


class Wanted:
    """Watches, from the first moment on, whether anybody needs the server."""

    def __init__(self, home: Path, process: ProcessId) -> None:
        self._home = home
        self._process = process
        self._users = opened(home / "users.lock")
        self._server: uvicorn.Server | None = None
        threading.Thread(target=self._watch, name="wanted", daemon=True).start()

    def serves(self, server: uvicorn.Server) -> None:
        self._server = server

    def _watch(self) -> None:
        # The lock is then held until the end, so that nobody can begin to use a server that is
        # about to end.
        while not try_lock(self._users, fcntl.LOCK_EX):
            time.sleep(LOOK_EVERY_S)
        if self._server is not None and self._server.started:
            self._server.should_exit = True
            time.sleep(END_S)
        # This is safe even during a migration, which is a transaction of the database.
        remove_record(self._home, self._process)
        os._exit(0)


def _serve(
    listener: socket.socket, home: Path, address: str, database: str, wanted: Wanted
) -> None:
    origins = _origins(address)
    os.environ.update(SERVER_SETTINGS)
    os.environ.update(
        {
            "PREFECT_HOME": str(home),
            VARIABLE: database,
            "PREFECT_UI_API_URL": f"{address}/api",
            ORIGINS: ",".join(origins),
        }
    )
    for name, value in {**RETENTION, "PREFECT_UI_URL": address}.items():
        os.environ.setdefault(name, value)
    with imports_without_gc():
        # Prefect reads its settings when it is imported.
        from prefect.server.api.server import create_app
        from prefect.settings import get_current_settings

        from mortal.server.sqlite import use_waiting_sqlite
    if database.startswith(SQLITE):
        use_waiting_sqlite(database)
    with imports_without_gc():  # create_app collects garbage, which may skip all that was imported
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
    server = uvicorn.Server(config)
    wanted.serves(server)
    server.run(sockets=[listener])


def _origins(address: str) -> list[str]:
    """Return the origins whose pages may use the server: its own, and those that the user names."""
    named = [each.strip() for each in os.environ.get(ORIGINS, "").split(",")]
    return [address, address.replace(HOST, "localhost"), *filter(None, named)]


if __name__ == "__main__":
    main()
