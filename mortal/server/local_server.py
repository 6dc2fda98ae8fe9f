"""Our own Prefect server on loopback, which all commands of one user share.

Each command holds a lock while it lives, and the server ends when nobody holds the lock any more
(mortal/server/process.py). If the server dies earlier, one of the commands starts it again.
"""

import contextlib
import errno
import fcntl
import http.client
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import IO

import mortal
from mortal.server.files import (
    END_S,
    FOLDER_IN_USE,
    LOG,
    PORT_IN_USE,
    VARIABLE,
    ServerRecord,
    client_environment,
    database_url,
    in_use_elsewhere,
    living_server,
    opened,
    out_of_room,
    read_record,
    server_home,
    state_dir,
    try_lock,
    without_password,
)
from mortal_steps.errors import ServerError
from mortal_steps.store.files import locked

START_TIMEOUT_S = 600.0
"""Seconds that a living server may take until it answers. On a slow machine, the first start takes
minutes."""
GONE_TIMEOUT_S = END_S + 10.0
"""Seconds to wait for the end of a server that nobody needs."""
ANSWER_TIMEOUT_S = 20.0
LOOK_EVERY_S = 0.5
LONGEST_PAUSE_S = 60.0
"""The longest pause between two starts of a server that keeps dying, in seconds."""


@contextlib.contextmanager
def begun_server(ports: Sequence[int], say: Callable[[str], None]) -> Iterator[ServerRecord]:
    """Join the server that another command has started, or start one on the first of the `ports`
    that is free (0: any port). It may still be starting; see `answering`. Raises `ServerError` if
    the server does not start, or if one already runs on another port and any port will not do."""
    home = server_home()
    with opened(home / "users.lock") as users:
        with locked(home / "start.lock"):
            _want(users)
            database = without_password(database_url(home))
            record = living_server(home) or _first_start(home, ports, say)
            _check_database(record, database)
            if record.port not in ports and 0 not in ports:
                raise ServerError(
                    f"--port {ports[0]}: MORTAL's Prefect server already runs at {record.api_url}; "
                    "leave out --port to use that one, or end the commands that use it"
                )
        try:
            yield record
        finally:
            _leave(home, users)


@contextlib.contextmanager
def answering(server: ServerRecord, say: Callable[[str], None]) -> Iterator[None]:
    """Wait until the server answers, name it to Prefect's client here and in children, and keep it
    running during the block. Raises `ServerError` if it does not start."""
    os.environ.update(client_environment(server))
    home = server_home()
    _wait_until_it_answers(home, server)
    with _kept_running(home, server, say):
        yield


def join_server(say: Callable[[str], None]) -> None:
    """Need, and keep running, our own server for as long as this process lives."""
    home = state_dir() / "prefect"
    record = read_record(home)
    if record is not None and record.api_url == os.environ.get("PREFECT_API_URL"):
        users = _JOINED.enter_context(opened(home / "users.lock"))
        _want(users)
        _JOINED.enter_context(_kept_running(home, record, say))


_JOINED = contextlib.ExitStack()
"""What `join_server` holds. It is never closed, for the server has to hear how the flow ends."""


def _want(users: IO[str]) -> None:
    """Take the users' shared lock, after a server that is about to end. Raises `ServerError`."""
    deadline = time.monotonic() + GONE_TIMEOUT_S
    while not try_lock(users, fcntl.LOCK_SH):
        if time.monotonic() > deadline:
            raise ServerError(
                f"MORTAL's previous Prefect server does not end; kill its process, which "
                f"`fuser -v {users.name}` shows"
            )
        time.sleep(0.05)


class PortInUseError(ServerError):
    """Another program listens on the port."""


def _first_start(home: Path, ports: Sequence[int], say: Callable[[str], None]) -> ServerRecord:
    """See `_start`. Tries a killed server's port first, where others may wait for it."""
    killed = read_record(home)
    if killed is not None and 0 in ports:
        ports = [killed.port, *ports]
    for port in ports[:-1]:
        with contextlib.suppress(PortInUseError):
            return _start(home, port, say)
    return _start(home, ports[-1], say)


def _start(home: Path, port: int, say: Callable[[str], None]) -> ServerRecord:
    """Start a server; return once its address is known. Raises `ServerError`. Needs start.lock."""
    process = _spawn(home, port)
    deadline = time.monotonic() + START_TIMEOUT_S
    while (record := living_server(home)) is None or record.process.pid != process.pid:
        if process.poll() == PORT_IN_USE:
            raise PortInUseError(
                f"port {port} is in use on 127.0.0.1; choose another --port, or set "
                "PREFECT_API_URL to the Prefect server that runs there"
            )
        if process.returncode == FOLDER_IN_USE:
            raise in_use_elsewhere(home)
        if process.returncode is not None or time.monotonic() > deadline:
            process.kill()
            raise _did_not_start(home)
        time.sleep(0.02)
    say(f"starting a Prefect server at {record.ui_url} ...")
    return record


def _spawn(home: Path, port: int) -> subprocess.Popen[bytes]:
    source = str(Path(mortal.__file__).parents[1])
    env = {name: value for name, value in os.environ.items() if name != "PREFECT_API_URL"}
    env["PYTHONPATH"] = os.pathsep.join(filter(None, (source, env.get("PYTHONPATH"))))
    command = [sys.executable, "-P", "-m", "mortal.server.process", str(home), str(port)]
    with (home / LOG).open("ab") as log:
        return subprocess.Popen(
            command,
            cwd=home,
            env=env,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,  # Ctrl-C is for the run; the server ends after it
        )


def _check_database(record: ServerRecord, wanted: str) -> None:
    """Raise `ServerError` if the server keeps its history in another database than `wanted`."""
    if record.database != wanted:
        raise ServerError(
            f"MORTAL's Prefect server at {record.api_url} keeps its history in {record.database}, "
            f"but {VARIABLE} asks for {wanted}; set the variable to its value when that server "
            "started, or end the commands that use the server"
        )


def _did_not_start(home: Path) -> ServerError:
    log = home / LOG
    return ServerError(f"the Prefect server did not start; its log is {log}{out_of_room(home)}")


def _wait_until_it_answers(home: Path, record: ServerRecord) -> None:
    deadline = time.monotonic() + START_TIMEOUT_S
    while not answers(record.port):
        if not record.process.lives() or time.monotonic() > deadline:
            raise _did_not_start(home)
        time.sleep(0.1)


def answers(port: int) -> bool:
    """Return whether the server on this loopback port is healthy; quicker than making Prefect's
    client. Raises `ServerError` if the interface of loopback is down."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=ANSWER_TIMEOUT_S)
    try:
        connection.request("GET", "/api/health")
        return connection.getresponse().status == http.HTTPStatus.OK
    except (OSError, http.client.HTTPException) as error:
        if isinstance(error, OSError) and error.errno == errno.ENETUNREACH:
            raise ServerError(
                "127.0.0.1 cannot be reached: the network interface lo is down. Bring it up with "
                "`ip link set lo up`, or set PREFECT_API_URL to a server that can be reached"
            ) from error
        return False
    finally:
        connection.close()


@contextlib.contextmanager
def _kept_running(home: Path, record: ServerRecord, say: Callable[[str], None]) -> Iterator[None]:
    """During the block, restart the server on the same port whenever it has died."""
    left = threading.Event()

    def watch() -> None:
        pause = LOOK_EVERY_S
        while not left.wait(pause):
            if living_server(home) is not None:
                pause = LOOK_EVERY_S
                continue
            if not (home / "users.lock").exists():
                say(
                    f"{home} was deleted, with the history of the Prefect server that uses it; end "
                    "the commands that use the server, and start them again"
                )
                return
            with opened(home / "start.lock") as lock:
                if not try_lock(lock, fcntl.LOCK_EX) or living_server(home) is not None:
                    continue  # another command is restarting it, or has done so
                try:
                    _start(home, record.port, say)
                except ServerError as error:
                    say(str(error))
            pause = min(2 * pause, LONGEST_PAUSE_S)

    watcher = threading.Thread(target=watch, name="server", daemon=True)
    watcher.start()
    try:
        yield
    finally:
        left.set()
        watcher.join()


def _leave(home: Path, users: IO[str]) -> None:
    """Give up the shared lock. If nobody else needs the server, wait until it has ended."""
    if not home.exists():  # deleted; the server ends when the lock, which it has open, is free
        return
    with locked(home / "start.lock"):
        record = living_server(home)
        others = not try_lock(users, fcntl.LOCK_EX) and try_lock(users, fcntl.LOCK_SH)
        fcntl.flock(users, fcntl.LOCK_UN)
        if record is None or others:
            return
        deadline = time.monotonic() + GONE_TIMEOUT_S
        while record.process.lives():
            if time.monotonic() > deadline:
                record.process.kill()
            time.sleep(0.05)
