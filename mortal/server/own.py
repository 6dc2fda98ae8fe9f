"""Our own Prefect server, on loopback, for all commands of one user that want one.

Each of them holds a lock for as long as it lives, and the server ends when nobody holds it any more
(mortal/server/process.py). A server that dies before that is started again by those who want it.
"""

from __future__ import annotations

import contextlib
import dataclasses
import fcntl
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO

import mortal
from mortal.server.database import VARIABLE, database_url, without_password
from mortal.server.files import (
    END_S,
    FOLDER_IN_USE,
    LOG,
    PORT_IN_USE,
    Server,
    ServerRecord,
    client_environment,
    in_use_elsewhere,
    living_server,
    locked,
    opened,
    read_record,
    server_home,
    try_lock,
    write_record,
)
from mortal.server.health import answers
from mortal_steps.errors import ServerError

START_TIMEOUT_S = 600.0
"""How long a living server may take until it answers: a slow machine needs minutes for the first
start."""
GONE_TIMEOUT_S = END_S + 10.0
LOOK_EVERY_S = 0.5
LONGEST_PAUSE_S = 60.0
"""Between two starts of a server that does not stay."""


@contextlib.contextmanager
def own_server(
    port: int, *, any_port: bool, keep: bool, say: Callable[[str], None]
) -> Iterator[Server]:
    """The server that another command has started, or a new one on `port` (0: any free one).

    Raises `ServerError` if it does not start, or where one runs on another port already and not
    `any_port` will do.
    """
    with begun_server(port, any_port=any_port, keep=keep, say=say) as begun:
        yield begun.answering()


@contextlib.contextmanager
def begun_server(
    port: int, *, any_port: bool, keep: bool, say: Callable[[str], None]
) -> Iterator[BegunServer]:
    """`own_server` that may still be on its way up."""
    home = server_home()
    with opened(home / "users.lock") as users:
        with locked(home / "start.lock"):
            _want(users)
            database = without_password(database_url(home))
            record = living_server(home) or _first_start(home, port, any_port, keep, say)
            _check_database(record, database)
            if port not in (0, record.port) and not any_port:
                raise ServerError(
                    f"--port {port}: MORTAL's Prefect server already runs at {record.api_url}; "
                    "leave out --port to use that one, or end the commands that use it"
                )
            if keep:
                write_record(home, dataclasses.replace(record, keep=True))
        try:
            with contextlib.ExitStack() as held:
                yield BegunServer(home, record, held, say)
        finally:
            _leave(home, users, say)


class BegunServer:
    """Our own server, as soon as its address is known."""

    def __init__(
        self,
        home: Path,
        record: ServerRecord,
        held: contextlib.ExitStack,
        say: Callable[[str], None],
    ) -> None:
        self._home = home
        self._record = record
        self._held = held
        self._say = say
        self.server = Server(api_url=record.api_url)

    def name(self) -> None:
        """Name it to Prefect's client, which is not imported yet, in this process and below."""
        os.environ.update(client_environment(self.server))

    def answering(self) -> Server:
        """The server when it answers; kept running from now on. Raises `ServerError` if it does not
        start."""
        self.name()
        try:
            _wait_until_it_answers(self._home, self._record)
        except ServerError:
            if self._record.process.lives():
                raise
            self._start_again()
            _wait_until_it_answers(self._home, self._record)
        self._held.enter_context(_kept_running(self._home, self._record, self._say))
        return self.server

    def _start_again(self) -> None:
        """It was killed while nobody watched it; at its port, which was named already."""
        port, keep = self._record.port, self._record.keep
        with locked(self._home / "start.lock"):
            found = living_server(self._home) or _start(self._home, port, keep, self._say)
        if found.port != port:
            raise _did_not_start(self._home)
        self._record = found


def keep_no_longer(say: Callable[[str], None]) -> None:
    """Let the server that was left running end; it does once nobody uses it, and `say` which."""
    home = server_home()
    with locked(home / "start.lock"), opened(home / "users.lock") as users:
        _want(users)  # so that the server does not look at the record meanwhile
        record = living_server(home)
        if record is None:
            say("MORTAL's Prefect server is not running")
            return
        write_record(home, dataclasses.replace(record, keep=False))
        _leave_locked(home, users, say)
        name = f"MORTAL's Prefect server at {Server(api_url=record.api_url).ui_url}"
        in_use = record.process.lives()
        say(f"{name} ends with the commands that use it" if in_use else f"{name} has ended")


def _want(users: IO[str]) -> None:
    """Be one of those who want the server, once the one that is about to end is gone."""
    deadline = time.monotonic() + GONE_TIMEOUT_S
    while not try_lock(users, fcntl.LOCK_SH):
        if time.monotonic() > deadline:
            raise ServerError(
                f"MORTAL's previous Prefect server does not end; kill its process, which "
                f"`fuser -v {users.name}` names"
            )
        time.sleep(0.05)


class PortInUseError(ServerError):
    """Another program listens on the port."""


def _first_start(
    home: Path, port: int, any_port: bool, keep: bool, say: Callable[[str], None]
) -> ServerRecord:
    """See `_start`; on a free port if the other is taken and `any_port` will do."""
    try:
        return _start(home, port, keep, say)
    except PortInUseError:
        if not any_port:
            raise
    return _start(home, 0, keep, say)


def _start(home: Path, port: int, keep: bool, say: Callable[[str], None]) -> ServerRecord:
    """A server that is on its way up; the start lock is held. Raises `ServerError`."""
    process = _spawn(home, port, keep=keep)
    deadline = time.monotonic() + START_TIMEOUT_S
    while (record := living_server(home)) is None or record.process.pid != process.pid:
        if process.poll() == PORT_IN_USE:
            raise PortInUseError(
                f"port {port} is in use on 127.0.0.1; choose another --port (0: any free one), or "
                "set PREFECT_API_URL to the Prefect server that runs there"
            )
        if process.returncode == FOLDER_IN_USE:
            raise in_use_elsewhere(home)
        if process.returncode is not None or time.monotonic() > deadline:
            process.kill()
            raise _did_not_start(home)
        time.sleep(0.02)
    say(f"starting a Prefect server at {Server(api_url=record.api_url).ui_url} ...")
    return record


def _spawn(home: Path, port: int, *, keep: bool) -> subprocess.Popen[bytes]:
    source = str(Path(mortal.__file__).parents[1])
    env = {name: value for name, value in os.environ.items() if name != "PREFECT_API_URL"}
    env["PYTHONPATH"] = os.pathsep.join(filter(None, (source, env.get("PYTHONPATH"))))
    command = [sys.executable, "-P", "-m", "mortal.server.process", str(home), str(port)]
    with (home / LOG).open("ab") as log:
        return subprocess.Popen(
            [*command, *(["--keep"] if keep else [])],
            cwd=home,
            env=env,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,  # Ctrl-C is for the run; the server ends after it
        )


def _check_database(record: ServerRecord, wanted: str) -> None:
    """Raise `ServerError` for another database: a part of the history in each is of no use."""
    if record.database != wanted:
        raise ServerError(
            f"MORTAL's Prefect server at {record.api_url} keeps its history in {record.database}, "
            f"and {VARIABLE} asks for {wanted}; set the variable as it was when that server "
            "started, or end the commands that use it"
        )


def _did_not_start(home: Path) -> ServerError:
    return ServerError(f"the Prefect server did not start; its log is {home / LOG}")


def _wait_until_it_answers(home: Path, record: ServerRecord) -> None:
    deadline = time.monotonic() + START_TIMEOUT_S
    while not answers(record.port):
        if not record.process.lives() or time.monotonic() > deadline:
            raise _did_not_start(home)
        time.sleep(0.1)


@contextlib.contextmanager
def _kept_running(home: Path, record: ServerRecord, say: Callable[[str], None]) -> Iterator[None]:
    """For the time of the block, start the server again, on the same port, if it is gone."""
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
                    continue  # somebody else has done it
                keep = (read_record(home) or record).keep
                try:
                    _start(home, record.port, keep, say)
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


def _leave(home: Path, users: IO[str], say: Callable[[str], None]) -> None:
    if not home.exists():  # deleted; the server ends when the lock, which it has open, is free
        return
    with locked(home / "start.lock"):
        _leave_locked(home, users, say)


def _leave_locked(home: Path, users: IO[str], say: Callable[[str], None]) -> None:
    """Want the server no longer, and return when it is gone if nobody else does."""
    record = living_server(home)
    others = not try_lock(users, fcntl.LOCK_EX) and try_lock(users, fcntl.LOCK_SH)
    fcntl.flock(users, fcntl.LOCK_UN)
    if record is None or others:
        return
    if record.keep:
        say(f"Prefect server left running at {Server(api_url=record.api_url).ui_url}")
        return
    deadline = time.monotonic() + GONE_TIMEOUT_S
    while record.process.lives():
        if time.monotonic() > deadline:
            record.process.kill()
        time.sleep(0.05)
