"""The files through which a user's commands and their Prefect server find each other.

    server.json   the server's address and process, written by the server itself
    users.lock    held, shared, by every process that needs the server. The kernel releases the lock
                  when that process ends, in whatever way. The server ends as soon as it can hold
                  the lock alone, and then holds it until it has ended
    start.lock    held while a command checks whether there is a server, or starts one
    server.lock   held by the server while it lives. It reveals a server on another machine, or in
                  another container, that shares the folder and whose process cannot be seen here

Other users of the machine can read none of these files.

The history is in SQLite, or in PostgreSQL if an environment variable names one. Prefect's own
vacuum removes flow runs that ended long ago. SQLite then reuses the space; its file does not
shrink.
"""

import fcntl
import json
import os
import re
import shutil
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import IO

from mortal_steps.errors import ServerError, StoreError
from mortal_steps.store.files import failed_write, lock_file, write_json, writing
from mortal_steps.system.disks import is_disk_error
from mortal_steps.system.processes import ProcessId

DATABASE = "prefect.db"
VARIABLE = "PREFECT_SERVER_DATABASE_CONNECTION_URL"
EARLIER_VARIABLE = "PREFECT_API_DATABASE_CONNECTION_URL"
"""Prefect takes this name, too."""
SQLITE, POSTGRESQL = "sqlite+aiosqlite", "postgresql+asyncpg"
LOG = "server.log"
PORT_IN_USE = 98
FOLDER_IN_USE = 97
"""Exit codes of a server."""
END_S = 10.0
"""Seconds that a server which nobody needs may take to end."""
ROOM = 2**20
"""A disk with fewer free bytes is full for a server."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Server:
    """A Prefect server."""

    api_url: str
    """Such as `http://127.0.0.1:4200/api`."""

    @property
    def ui_url(self) -> str:
        return self.api_url.removesuffix("/api")


@dataclass(frozen=True, kw_only=True, slots=True)
class ServerRecord(Server):
    """The record that a server of ours writes about itself when it starts."""

    process: ProcessId
    database: str
    """URL of the database with its history, without a password."""

    @property
    def port(self) -> int:
        return int(self.ui_url.rpartition(":")[2])


def state_dir() -> Path:
    """`MORTAL_STATE_DIR`, or the folder `mortal` in the user's state directory."""
    chosen = os.environ.get("MORTAL_STATE_DIR")
    base = os.environ.get("XDG_STATE_HOME") or str(Path.home() / ".local" / "state")
    return Path(chosen) if chosen else Path(base) / "mortal"


def server_home() -> Path:
    """Return the folder of the server's files, which is private. Raises `StoreError`."""
    home = (state_dir() / "prefect").absolute()
    try:
        home.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        if is_disk_error(error):
            raise failed_write(home, error) from error
        raise StoreError(
            f"cannot make {home} for the Prefect server: {error.strerror}; set MORTAL_STATE_DIR to "
            "a folder that you can write to"
        ) from error
    with writing(home):
        home.chmod(0o700)
        # SQLite gives the files that it makes beside the database the same mode.
        os.close(os.open(home / DATABASE, os.O_CREAT | os.O_RDWR, 0o600))
        (home / DATABASE).chmod(0o600)
    return home


def client_environment(server: Server) -> dict[str, str]:
    """Environment variables for a flow that reports to our own `server`."""
    environment = {
        "PREFECT_API_URL": server.api_url,
        "PREFECT_RESULTS_LOCAL_STORAGE_PATH": str(server_home() / "results"),
    }
    password = os.environ.get("PREFECT_SERVER_API_AUTH_STRING")
    if password:  # the server uses the same variable
        environment["PREFECT_API_AUTH_STRING"] = password
    return environment


def read_record(home: Path) -> ServerRecord | None:
    """Return the record of the last server; None if it ended in order or the record is damaged."""
    try:
        found = json.loads((home / "server.json").read_text(encoding="utf-8"))
        return ServerRecord(
            api_url=found["api_url"],
            process=ProcessId(**found["process"]),
            database=found["database"],
        )
    except (FileNotFoundError, ValueError, KeyError, TypeError):
        return None


def living_server(home: Path) -> ServerRecord | None:
    """Return the server that is running or starting; None if there is none."""
    record = read_record(home)
    return record if record is not None and record.process.lives() else None


def out_of_room(home: Path) -> str:
    """Return the end of an error message, if the disk is full that holds the files of a server of
    ours; otherwise nothing. The server's own errors do not tell."""
    free = shutil.disk_usage(home).free
    if free >= ROOM:
        return ""
    return (
        f". The disk that holds {home} is full ({free:,} bytes are free): free some space, or set "
        "MORTAL_STATE_DIR to a folder on another disk"
    )


def in_use_elsewhere(home: Path) -> ServerError:
    """Return the error to raise if a server that cannot be seen from here uses the folder."""
    return ServerError(
        f"the Prefect server of {home} runs on another machine, or in another container, that "
        "shares this folder. Set MORTAL_STATE_DIR to a folder that only this machine uses, or set "
        "PREFECT_API_URL to a server that both can reach"
    )


def write_record(home: Path, record: ServerRecord) -> None:
    write_json(home / "server.json", asdict(record))


def remove_record(home: Path, process: ProcessId) -> None:
    record = read_record(home)
    if record is not None and record.process == process:
        (home / "server.json").unlink(missing_ok=True)


def opened(path: Path) -> IO[str]:
    """Open a file to lock. Raises `StoreError` if it cannot be made."""
    with writing(path):
        return path.open("a", encoding="utf-8")


def try_lock(lock: IO[str], how: int) -> bool:
    """Lock the open file by `how`, `fcntl.LOCK_SH` or `LOCK_EX`, without waiting; returns whether
    it is held now. Raises `StoreError`."""
    return lock_file(lock, how | fcntl.LOCK_NB, Path(lock.name))


def database_url(home: Path) -> str:
    """Return the database's URL, in Prefect's form, of the server whose files are in `home`. Raises
    `ServerError` for one in the environment that Prefect cannot use."""
    named = os.environ.get(VARIABLE) or os.environ.get(EARLIER_VARIABLE)
    if not named:
        return f"{SQLITE}:///{home / DATABASE}"
    if named.partition("://")[0] not in (SQLITE, POSTGRESQL):
        raise ServerError(
            f"{VARIABLE} = {without_password(named)}: for PostgreSQL, write "
            f"{POSTGRESQL}://USER:PASSWORD@HOST/DATABASE; without the variable, the history is "
            "kept in SQLite"
        )
    return named


def without_password(url: str) -> str:
    """Return the URL without its password and its query, so that it may be shown and stored."""
    return re.sub(r"(://[^:@/]*):.*@", r"\1@", url).partition("?")[0]
