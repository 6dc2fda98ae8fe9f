"""Nodes of a Ray cluster as processes of this machine, started and ended by process id."""

from __future__ import annotations

import os
import secrets
import shutil
import signal
import socket
import time
from pathlib import Path

from mortal_steps.system.child import Child
from tests.support.chaos.processes import CONTAINER
from tests.support.paths import ROOT

RAY = ROOT / ".venv-ray/bin/ray"
PYTHON = ROOT / ".venv-ray/bin/python"
HEAD = "127.0.0.2"
"""Ray takes another address of the machine in place of 127.0.0.1."""
NODES = ("127.0.0.3", "127.0.0.4")
STARTED_WITHIN_S = 120.0
TRIES = 3
# Ray starts its processes and ends; the supervisor of this shell inherits them.
STAY = 'log=$1; shift; "$@" > "$log" 2>&1 < /dev/null; echo "code $?" >> "$log"; exec sleep 100000'
SOONER = {
    "RAY_health_check_initial_delay_ms": "1000",
    "RAY_health_check_period_ms": "2000",
    "RAY_health_check_timeout_ms": "5000",
    "RAY_health_check_failure_threshold": "3",
    "RAY_gcs_rpc_server_reconnect_timeout_s": "10",
    "RAY_memory_monitor_refresh_ms": "0",  # others may fill this machine
}
"""Ray's own patience is a minute for a node that does not answer, and for a head that is gone."""


class Cluster:
    """A head, on which no worker finds a core, and two nodes. Each has an address of its own;
    whoever has not the token in `environment` is refused."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir()
        self._folder = folder
        token = folder / "token"
        token.write_text(secrets.token_hex(32))
        token.chmod(0o600)
        self.environment = {
            "RAY_AUTH_MODE": "token",
            "RAY_AUTH_TOKEN_PATH": str(token),
            "RAY_USAGE_STATS_ENABLED": "0",
            "PYTHONPATH": str(ROOT),
            "HF_HUB_OFFLINE": "1",
            **SOONER,
        }
        self.address = f"{HEAD}:{free_port()}"
        self._temporary = Path(
            f"/tmp/mortal-ray-{secrets.token_hex(4)}"
        )  # sockets have short names
        self._nodes: dict[str, Child] = {}

    @property
    def settings(self) -> tuple[str, ...]:
        """What a run on this cluster sets."""
        return (
            "compute.backend=ray",
            f"compute.ray.address={self.address}",
            f"compute.ray.python={PYTHON}",
            "compute.ray.call_timeout_s=60",
        )

    def __enter__(self) -> Cluster:
        self.start()
        return self

    def __exit__(self, *raised: object) -> None:
        for ip in list(self._nodes):
            self.kill(ip)
        shutil.rmtree(self._temporary, ignore_errors=True)

    def start(self) -> None:
        """Start whatever does not run, the head first."""
        if HEAD not in self._nodes:
            self.start_head()
        for ip in NODES:
            if ip not in self._nodes:
                self.start_node(ip)

    def start_head(self) -> None:
        port = self.address.rpartition(":")[2]
        options = ("--head", f"--port={port}", f"--temp-dir={self._temporary}", "--num-cpus=0")
        self._start(
            HEAD, *options, "--include-dashboard=false", f"--ray-client-server-port={free_port()}"
        )

    def start_node(self, ip: str, *options: str) -> None:
        self._start(ip, f"--address={self.address}", "--num-cpus=2", *options)

    def kill(self, ip: str) -> None:
        """SIGKILL to everything on a node, which is then to be started anew."""
        self._nodes.pop(ip).kill_all()

    def kill_head(self) -> None:
        """SIGKILL to the process that knows of the cluster; the nodes cannot go on without it."""
        (gcs,) = self.processes(HEAD, "gcs_server")
        os.kill(gcs, signal.SIGKILL)

    def start_anew(self) -> None:
        """What is left to a user without a head: start all nodes again."""
        for ip in list(self._nodes):
            self.kill(ip)
        self.start()

    def processes(self, ip: str, name: str) -> list[int]:
        """Return the ids of a node's processes whose command line contains a text."""
        everyone = below(self._nodes[ip].pid) if ip in self._nodes else []
        return [pid for pid in everyone if name in command_of(pid)]

    def find_worker(self, worker: str) -> tuple[str, int]:
        """Return the node that a worker such as `actor-0` is on, and its process."""
        for ip in list(self._nodes):
            workers = self.processes(ip, CONTAINER.decode())
            if own := [pid for pid in workers if output_of(pid).stem == worker]:
                return ip, own[-1]
        raise LookupError(f"{worker} is on no node")

    def _start(self, ip: str, *options: str) -> None:
        log = self._folder / f"{ip}.log"
        command = [
            *(str(RAY), "start", f"--node-ip-address={ip}", "--num-gpus=0"),
            *("--object-store-memory=80000000", "--disable-usage-stats"),
            *("--min-worker-port=0", "--max-worker-port=0", *options),
        ]
        for _ in range(TRIES):  # on a busy machine, a node does not find its head in time
            if self._is_up(ip, command, log):
                return
            self.kill(ip)
        raise RuntimeError(f"node {ip} does not start: {log.read_text()}")

    def _is_up(self, ip: str, command: list[str], log: Path) -> bool:
        log.unlink(missing_ok=True)
        shell = ["sh", "-c", STAY, "sh", str(log), *command]
        self._nodes[ip] = Child(shell, env={**os.environ, **self.environment}, cwd=ROOT)
        deadline = time.monotonic() + STARTED_WITHIN_S
        while not log.exists() or "\ncode " not in log.read_text():
            if time.monotonic() > deadline:
                return False
            time.sleep(0.1)
        return "\ncode 0\n" in log.read_text()


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind((HEAD, 0))
        return int(listener.getsockname()[1])


def command_of(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_text().replace("\0", " ")
    except (FileNotFoundError, ProcessLookupError):
        return ""


def output_of(pid: int) -> Path:
    """Return the file that a process writes to."""
    try:
        return Path(os.readlink(f"/proc/{pid}/fd/1"))
    except (FileNotFoundError, ProcessLookupError):
        return Path()


def below(pid: int) -> list[int]:
    """Return all descendants, each after those that it descends from."""
    found = []
    for children in Path(f"/proc/{pid}/task").glob("*/children"):
        try:
            own = [int(child) for child in children.read_text().split()]
        except (FileNotFoundError, ProcessLookupError):
            continue
        for child in own:
            found += [child, *below(child)]
    return found
