"""All that there is in these nights: machine, line, disk, judge, receiver, and the server's API."""

import contextlib
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx

from benchmarks.nights.judge import Judge
from benchmarks.nights.line import Line
from benchmarks.nights.machine import Machine, Service
from benchmarks.nights.project import write_project
from benchmarks.nights.receiver import Receiver
from mortal.driver import QUIET_PREFECT
from mortal.server.files import DATABASE
from tests.support.disk import Disk, mounted

BLOCK = "ops"
DISK_MB = 512
UP_WITHIN_S = 120.0
SILENCE_S = 45.0
"""Prefect lets a flow send a heartbeat every 30 s at most."""
PAUSE_S = 10.0


@dataclass(frozen=True, kw_only=True, slots=True)
class Cluster:
    """Where the nights are spent."""

    project: Path
    machine: Machine
    line: Line
    disk: Disk | None
    """Of `runs/`, where it may be filled."""
    judge: Judge
    receiver: Receiver
    api_url: str
    """The server's own, beside the line."""
    env: dict[str, str]
    """Of the machine's processes."""
    database: Path
    http: httpx.Client

    @property
    def runs(self) -> Path:
        """The runs directory."""
        return self.project / "runs"

    def command(self, module: str, *arguments: str) -> None:
        """Run what the user types before the first night. Raises `CalledProcessError`."""
        env = {**self.env, "PREFECT_API_URL": self.api_url, "PWD": str(self.project)}
        command = [sys.executable, "-m", module, *arguments]
        with (self.project.parent / "commands.log").open("ab") as log:
            subprocess.run(command, cwd=self.project, env=env, check=True, stdout=log, stderr=log)

    def ask(self, method: str, path: str, wanted: Any = None) -> Any:
        """Return what the server answers, once it does: it may be away just now."""
        deadline = time.monotonic() + UP_WITHIN_S
        while True:
            try:
                answer = self.http.request(method, path, json=wanted)
                return answer.raise_for_status().json()
            except (httpx.TransportError, httpx.HTTPStatusError):
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.5)

    def database_mb(self) -> float:
        """Size of the database's files."""
        files = self.database.parent.glob(f"{self.database.name}*")
        return sum(path.stat().st_size for path in files) / 2**20


@contextlib.contextmanager
def cluster(folder: Path, *, with_disk: bool) -> Iterator[Cluster]:
    """Yield a cluster in the folder: the server and the worker run; nothing is deployed."""
    project, state = folder / "project", folder / "state"
    project.mkdir()
    with contextlib.ExitStack() as held:
        judge, receiver, machine = Judge(), Receiver(), Machine()
        held.callback(judge.close)
        held.callback(receiver.close)
        write_project(project, judge.url)
        disk = held.enter_context(mounted(project / "runs", DISK_MB)) if with_disk else None
        server_port = _free_port()
        line = Line(server_port)
        held.callback(line.close)
        env = _environment(machine, state, line)
        held.callback(machine.close)
        mortal = (sys.executable, "-m", "mortal", "server", "--port", str(server_port))
        server = Service("server", mortal, folder, env)
        machine.services.append(server)
        server.begin()
        api_url = f"http://127.0.0.1:{server_port}/api"
        client = held.enter_context(httpx.Client(base_url=api_url, timeout=30, trust_env=False))
        made = Cluster(
            project=project,
            machine=machine,
            line=line,
            disk=disk,
            judge=judge,
            receiver=receiver,
            api_url=api_url,
            env=env,
            database=state / "prefect" / DATABASE,
            http=client,
        )
        made.ask("GET", "/health")
        made.command("prefect", "work-pool", "create", "local", "--type", "process")
        receiver.make_block(api_url, BLOCK)
        prefect = (sys.executable, "-m", "prefect", "worker", "start", "--pool", "local")
        through_line = {**env, "PREFECT_API_URL": f"http://127.0.0.1:{line.port}/api"}
        worker = Service("worker", prefect, folder, {**through_line, "PWD": str(folder)})
        machine.services.append(worker)
        worker.begin()
        yield made


def _environment(machine: Machine, state: Path, line: Line) -> dict[str, str]:
    env = {name: value for name, value in os.environ.items() if not name.startswith("PREFECT_")}
    return machine.environment(
        {
            **env,
            **QUIET_PREFECT,
            "OMP_NUM_THREADS": "1",
            "HF_HUB_OFFLINE": "1",
            "MORTAL_STATE_DIR": str(state),
            "PREFECT_WORKER_QUERY_SECONDS": "1",
            # The line is another address of the server's.
            "PREFECT_SERVER_CORS_ALLOWED_ORIGINS": f"http://127.0.0.1:{line.port}",
        }
    )


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
