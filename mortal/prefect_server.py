"""The Prefect server a run reports to: the user's own, or one on loopback for this user.

Prefect's in-process ("ephemeral") API forgets task runs when the process exits, so without a
configured server `mortal` starts a real one, on SQLite below the state directory.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any
from uuid import UUID

import httpx

from mortal_steps.errors import ServerError
from mortal_steps.files import write_json

START_TIMEOUT_S = 90.0
HISTORY_TIMEOUT_S = 120.0
HISTORY_QUIET_S = 1.2
STOP_TIMEOUT_S = 10.0

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
    # minute, and the run stays Running for ever.
    "PREFECT_SERVER_EVENTS_EXPIRED_BUCKET_BUFFER": "P1D",
    "PREFECT_LOGGING_SERVER_LEVEL": "WARNING",
}


@dataclass(frozen=True, kw_only=True, slots=True)
class Server:
    """A Prefect server that answers."""

    api_url: str
    """Such as `http://127.0.0.1:4200/api`."""

    @property
    def ui_url(self) -> str:
        """The address for a browser."""
        return self.api_url.removesuffix("/api")


def state_dir() -> Path:
    """`MORTAL_STATE_DIR`, or `mortal` below the user's state directory."""
    chosen = os.environ.get("MORTAL_STATE_DIR")
    base = os.environ.get("XDG_STATE_HOME") or str(Path.home() / ".local" / "state")
    return Path(chosen) if chosen else Path(base) / "mortal"


@contextlib.contextmanager
def prefect_server(*, port: int, keep: bool, say: Callable[[str], None]) -> Iterator[Server]:
    """A server for the time of the block; `PREFECT_API_URL` names it to everything inside.

    The user's own server (`PREFECT_API_URL` in the environment) is used as it is. Otherwise one
    that another command started, otherwise a new one on `port` (0: any free one). The last command
    to leave stops it, unless one of them said `keep`. Raises `ServerError`.
    """
    configured = os.environ.get("PREFECT_API_URL")
    if configured:
        if not answers(configured):
            raise ServerError(
                f"PREFECT_API_URL = {configured} does not answer; start that server, or unset the "
                "variable and mortal starts one of its own"
            )
        yield Server(api_url=configured)
        return
    with _shared_server(port, keep=keep, say=say) as server:
        os.environ.update(client_environment(server))
        yield server


@contextlib.contextmanager
def _shared_server(port: int, *, keep: bool, say: Callable[[str], None]) -> Iterator[Server]:
    """Our own server: the first command starts it, the last one to leave stops it."""
    home = state_dir() / "prefect"
    home.mkdir(parents=True, exist_ok=True)
    with (home / "users.lock").open("a") as users:
        with _locked(home / "start.lock"):
            server = _running_server(keep=keep) or _start_server(home, port, keep, say)
            fcntl.flock(users, fcntl.LOCK_SH)
        try:
            yield server
        finally:
            fcntl.flock(users, fcntl.LOCK_UN)
            with _locked(home / "start.lock"):
                _stop_if_unused(home, users, say)


@contextlib.contextmanager
def _locked(path: Path) -> Iterator[None]:
    with path.open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def client_environment(server: Server) -> dict[str, str]:
    """Environment of a flow that reports to `server`."""
    home = state_dir() / "prefect"
    return {
        "PREFECT_API_URL": server.api_url,
        "PREFECT_RESULTS_LOCAL_STORAGE_PATH": str(home / "results"),
    }


def wait_for_history(server: Server, flow_run_id: UUID, *, completed: bool) -> None:
    """Wait until the server has written down every task run of a flow run.

    Task runs reach the database a while after they end; a server stopped at once would lose the
    last ones. Task runs of a run that did not complete may stay unfinished for ever. Raises
    `ServerError` after two minutes.
    """
    deadline = time.monotonic() + HISTORY_TIMEOUT_S
    last: list[int] = []
    since = time.monotonic()
    with httpx.Client(timeout=30) as client:
        while time.monotonic() < deadline:
            try:
                counts = [
                    _count_task_runs(client, server, flow_run_id, unfinished=unfinished)
                    for unfinished in (False, True)
                ]
            except httpx.HTTPError:  # it may come back before the time is over
                time.sleep(1)
                continue
            if counts != last:
                last, since = counts, time.monotonic()
            elif time.monotonic() - since > HISTORY_QUIET_S and not (completed and counts[1]):
                return
            time.sleep(0.2)
    raise ServerError(
        f"the server at {server.api_url} has not written the run's history after "
        f"{HISTORY_TIMEOUT_S:.0f} s; the run itself is whole in its run directory"
    )


def _count_task_runs(
    client: httpx.Client, server: Server, flow_run_id: UUID, *, unfinished: bool
) -> int:
    wanted: dict[str, Any] = {"flow_run_id": {"any_": [str(flow_run_id)]}}
    if unfinished:
        wanted["state"] = {"type": {"any_": ["PENDING", "RUNNING", "SCHEDULED"]}}
    answer = client.post(f"{server.api_url}/task_runs/count", json={"task_runs": wanted})
    answer.raise_for_status()
    return int(answer.json())


def _running_server(*, keep: bool) -> Server | None:
    """The server that another command started, if it still answers."""
    record = _read_record()
    if record is None or not answers(record["api_url"]):
        return None
    if keep and not record["keep"]:
        write_json(_record_path(), {**record, "keep": True})
    return Server(api_url=record["api_url"])


def _start_server(home: Path, port: int, keep: bool, say: Callable[[str], None]) -> Server:
    port = port or _free_port()
    if _port_in_use(port):
        raise ServerError(
            f"port {port} is in use on 127.0.0.1; choose another --port (0: any free one), or set "
            "PREFECT_API_URL to the Prefect server that runs there"
        )
    server = Server(api_url=f"http://127.0.0.1:{port}/api")
    say(f"starting a Prefect server at {server.ui_url} ...")
    with (home / "server.log").open("ab") as log:
        process = _spawn_server(home, port, log)
    deadline = time.monotonic() + START_TIMEOUT_S
    while not answers(server.api_url):
        if process.poll() is not None or time.monotonic() > deadline:
            _stop(process.pid)
            raise ServerError(f"the Prefect server did not start; its log is {home / 'server.log'}")
        time.sleep(0.2)
    record = {"api_url": server.api_url, "process_id": process.pid, "keep": keep}
    write_json(_record_path(), record)
    return server


def _stop_if_unused(home: Path, users: IO[str], say: Callable[[str], None]) -> None:
    record = _read_record()
    if record is None:
        return
    if record["keep"]:
        say(f"Prefect server left running at {record['api_url'].removesuffix('/api')}")
        return
    try:
        fcntl.flock(users, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return  # another command still reports to it, and stops it when it leaves
    _stop(record["process_id"])
    _record_path().unlink()


def _spawn_server(home: Path, port: int, log: IO[bytes]) -> subprocess.Popen[bytes]:
    env = {
        **os.environ,
        **SERVER_SETTINGS,
        "PREFECT_HOME": str(home),
        "PREFECT_API_DATABASE_CONNECTION_URL": f"sqlite+aiosqlite:///{home / 'prefect.db'}",
        "PREFECT_UI_API_URL": f"http://127.0.0.1:{port}/api",
    }
    command = [sys.executable, "-m", "prefect", "server", "start"]
    return subprocess.Popen(
        [*command, "--host", "127.0.0.1", "--port", str(port)],
        env=env,
        stdin=subprocess.DEVNULL,
        stdout=log,
        stderr=log,
        start_new_session=True,  # Ctrl-C is for the run; the server is stopped after it
    )


def _record_path() -> Path:
    return state_dir() / "prefect" / "server.json"


def _read_record() -> dict[str, Any] | None:
    try:
        return dict(json.loads(_record_path().read_text(encoding="utf-8")))
    except FileNotFoundError:
        return None


def answers(url: str) -> bool:
    """Whether a Prefect server is healthy; `url` with or without `/api`."""
    root = url.rstrip("/").removesuffix("/api")
    try:
        return httpx.get(f"{root}/api/health", timeout=5).status_code == 200
    except httpx.HTTPError:
        return False


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _port_in_use(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return True
    return False


def _stop(process_id: int) -> None:
    """SIGTERM to the server's process group, SIGKILL to what is left of it after a while."""
    for sign in (signal.SIGTERM, signal.SIGKILL):
        deadline = time.monotonic() + STOP_TIMEOUT_S
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process_id, sign)
            while time.monotonic() < deadline:
                with contextlib.suppress(ChildProcessError):
                    os.waitpid(process_id, os.WNOHANG)  # ours to bury, if we started it
                os.killpg(process_id, 0)
                time.sleep(0.1)
