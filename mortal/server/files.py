"""What the commands of one user and their Prefect server know of each other: files of one folder.

    server.json   the server's address and process, written by the server itself
    users.lock    locked, shared, by every process that wants the server; the kernel frees it when
                  that process is gone, whatever ended it. The server ends once it can have the lock
                  for itself, and holds it then until it is gone
    start.lock    held while somebody looks whether there is a server, or starts one
    server.lock   held by the server for as long as it lives: one on another machine, or in another
                  container, that shares the folder is a process that nobody here can see

Other users of the machine may read none of it.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import IO

from mortal.server.database import DATABASE, own_sqlite
from mortal_steps.errors import ServerError, StoreError
from mortal_steps.store.files import failed_write, is_full_disk, write_json, writing
from mortal_steps.system.processes import ProcessId

LOG = "server.log"
PORT_IN_USE = 98
FOLDER_IN_USE = 97
"""Exit codes of a server."""
END_S = 10.0
"""How long a server that nobody wants has to end."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Server:
    """A Prefect server."""

    api_url: str
    """Such as `http://127.0.0.1:4200/api`."""

    @property
    def ui_url(self) -> str:
        """The address for a browser."""
        return self.api_url.removesuffix("/api")


@dataclass(frozen=True, kw_only=True, slots=True)
class ServerRecord:
    """A server of ours, as it told of itself when it began."""

    api_url: str
    process: ProcessId
    keep: bool
    """Whether it stays when nobody wants it."""
    database: str
    """Where it keeps its history, without a password."""

    @property
    def port(self) -> int:
        """Where it listens."""
        return int(self.api_url.removesuffix("/api").rpartition(":")[2])


def state_dir() -> Path:
    """`MORTAL_STATE_DIR`, or `mortal` below the user's state directory."""
    chosen = os.environ.get("MORTAL_STATE_DIR")
    base = os.environ.get("XDG_STATE_HOME") or str(Path.home() / ".local" / "state")
    return Path(chosen) if chosen else Path(base) / "mortal"


def server_home() -> Path:
    """The folder of the server's files, which other users cannot enter. Raises `StoreError`."""
    home = (state_dir() / "prefect").absolute()
    try:
        home.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        if is_full_disk(error):
            raise failed_write(home, error) from error
        raise StoreError(
            f"cannot make {home} for the Prefect server: {error.strerror}; set MORTAL_STATE_DIR to "
            "a folder that you can write to"
        ) from error
    with writing(home):
        home.chmod(0o700)
        # SQLite gives the files beside it the same mode.
        os.close(os.open(home / DATABASE, os.O_CREAT | os.O_RDWR, 0o600))
        (home / DATABASE).chmod(0o600)
    return home


def client_environment(server: Server) -> dict[str, str]:
    """Environment of a flow that reports to our own `server`."""
    environment = {
        "PREFECT_API_URL": server.api_url,
        "PREFECT_RESULTS_LOCAL_STORAGE_PATH": str(server_home() / "results"),
    }
    password = os.environ.get("PREFECT_SERVER_API_AUTH_STRING")
    if password:  # which the server has, too
        environment["PREFECT_API_AUTH_STRING"] = password
    return environment


def read_record(home: Path) -> ServerRecord | None:
    """The server that was started last and did not end in order; a damaged record counts as none,
    and so does one of a server that does not say which process it is."""
    try:
        found = json.loads((home / "server.json").read_text(encoding="utf-8"))
        process = ProcessId(**found["process"])
        return ServerRecord(
            api_url=found["api_url"],
            process=process,
            keep=found["keep"],
            database=found.get("database", own_sqlite(home)),  # as older servers have it
        )
    except (FileNotFoundError, ValueError, KeyError, TypeError):
        return None


def living_server(home: Path) -> ServerRecord | None:
    """The server that runs, or is on its way up."""
    record = read_record(home)
    return record if record is not None and record.process.lives() else None


def in_use_elsewhere(home: Path) -> ServerError:
    """What to raise where a server that cannot be seen from here has the folder."""
    return ServerError(
        f"the Prefect server of {home} runs on another machine, or in another container, that "
        "shares this folder. Set MORTAL_STATE_DIR to a folder of this machine's own, or set "
        "PREFECT_API_URL to a server that both can reach"
    )


def write_record(home: Path, record: ServerRecord) -> None:
    """Replace the record."""
    write_json(home / "server.json", asdict(record))


def remove_record(home: Path, process: ProcessId) -> None:
    """Remove the record, if it is this process's."""
    record = read_record(home)
    if record is not None and record.process == process:
        (home / "server.json").unlink(missing_ok=True)


@contextlib.contextmanager
def locked(path: Path) -> Iterator[IO[str]]:
    """Hold the lock alone for the time of the block, once it can be had. Raises `StoreError`."""
    with opened(path) as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield lock


def opened(path: Path) -> IO[str]:
    """A file to lock. Raises `StoreError` if it cannot be made."""
    with writing(path):
        return path.open("a")


def try_lock(lock: IO[str], how: int) -> bool:
    """Lock the open file without waiting; whether that went."""
    try:
        fcntl.flock(lock, how | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
