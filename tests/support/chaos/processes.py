"""The processes of a run: the flow that we start, and those that it starts."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

from tests.support.chaos.schedule import TEACHER

CONTAINER = b"mortal_steps.compute.container"
FORK_SERVER = b"mortal_steps.compute.forkserver"
"""Also the command line of the workers that are forked from it."""
OF_FORKED_COMMANDS = b"multiprocessing.forkserver"
"""That of a `ForkedCommand`, of its fork server and of the workers."""
OF_FORKED_WORKERS = b"tests.support.forking.workers"
"""The same where the worker of pytest that forks the command was forked itself."""
HOST = b"mortal_steps.hosts.inside"
"""Also in the command line of the host's supervisor."""
FOLLOWER = b"mortal_steps.policy.ranks.follower"
"""Also in the command line of its supervisor."""
GONE_WITHIN_S = 10.0


class FlowProcess:
    """`mortal train` or `mortal resume`, its output in a file."""

    def __init__(self, folder: Path, output: Path, api_url: str, *arguments: str) -> None:
        self._output = output
        self.started = time.time()
        with output.open("ab") as file:
            self._from = file.tell()
            self._process = subprocess.Popen(
                [sys.executable, "-m", "mortal", *arguments],
                cwd=folder,
                env={
                    **os.environ,
                    "PREFECT_API_URL": api_url,
                    "PREFECT_HOME": str(folder / "prefect"),
                    "OMP_NUM_THREADS": "1",
                    "HF_HUB_OFFLINE": "1",
                },
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=file,
            )

    @property
    def code(self) -> int | None:
        """Its exit code; None while it runs."""
        return self._process.poll()

    def output(self) -> str:
        """Return what it has printed."""
        return self._output.read_bytes()[self._from :].decode(errors="replace")

    def process_ids(self, victim: str) -> list[int]:
        """The process that goes by this name, if it is there: the flow, a worker, the host."""
        return process_ids(self._process.pid, victim)

    def kill(self) -> bool:
        """SIGKILL; returns when its workers, which it takes along, are gone too.

        False if it had ended before.
        """
        workers = _containers(self._process.pid)
        self._process.kill()
        killed = self._process.wait() == -signal.SIGKILL
        for pid in workers:
            _wait_until_gone(pid)
        return killed


def process_ids(flow: int, victim: str) -> list[int]:
    """Return the process of this flow's that goes by this name, if it is there."""
    if victim == "flow":
        return [flow] if _lives(flow) else []
    workers = {_log_of(pid): pid for pid in _containers(flow)}
    if victim in ("environments", "cell"):
        hosts = hosts_of(workers["rollout-0"]) if "rollout-0" in workers else []
        return (
            hosts if victim == "environments" else [f for h in hosts for f in started_by(h, HOST)]
        )
    if victim == "rank-1":
        actors = [workers["actor-0"]] if "actor-0" in workers else []
        return [rank for actor in actors for rank in below(actor, FOLLOWER)]
    if victim in ("host", TEACHER):
        owners = [workers["reward-0"]] if "reward-0" in workers else []
        hosts = [host for owner in owners for host in hosts_of(owner)]
        return [host for host in hosts if _holds_a_model(host) == (victim == TEACHER)]
    return [workers[victim]] if victim in workers else []


def _holds_a_model(host: int) -> bool:
    """Whether a host is that of a model: it has imported torch."""
    try:
        return b"libtorch" in Path(f"/proc/{host}/maps").read_bytes()
    except (FileNotFoundError, ProcessLookupError):
        return False


def hosts_of(worker: int) -> list[int]:
    """Return the hosts of a worker."""
    return below(worker, HOST)


def below(owner: int, command: bytes) -> list[int]:
    """Return the processes with this in their command line, below their supervisors."""
    supervisors = started_by(owner, command)
    return [child for supervisor in supervisors for child in started_by(supervisor, command)]


def kill(pid: int) -> bool:
    """SIGKILL to a process that one of ours started; returns when it is gone.

    False if it had ended before.
    """
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        return False
    _wait_until_gone(pid)
    return True


def _wait_until_gone(pid: int) -> None:
    """Return when the process is dead, buried or not."""
    deadline = time.monotonic() + GONE_WITHIN_S
    while _lives(pid):
        if time.monotonic() > deadline:
            raise RuntimeError(f"process {pid} still runs {GONE_WITHIN_S:g} s after SIGKILL")
        time.sleep(0.001)


def _lives(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except (FileNotFoundError, ProcessLookupError):
        return False


def _containers(owner: int) -> list[int]:
    """Worker processes that `owner` started, or had forked; each is below a supervisor."""
    started = [
        worker
        for supervisor in started_by(owner, CONTAINER)
        for worker in started_by(supervisor, CONTAINER)
    ]
    forked = [
        worker
        for command in (FORK_SERVER, OF_FORKED_COMMANDS, OF_FORKED_WORKERS)
        for supervisor in started_by(owner, command)
        for server in started_by(supervisor, command)
        for worker in started_by(server, command)
    ]
    return started + forked


def started_by(owner: int, command: bytes = b"") -> list[int]:
    """Return processes with this in their command line, from whichever of the owner's threads."""
    found = []
    for children in Path(f"/proc/{owner}/task").glob("*/children"):
        try:
            for child in map(int, children.read_text().split()):
                if command in Path(f"/proc/{child}/cmdline").read_bytes() and _lives(child):
                    found.append(child)
        except (FileNotFoundError, ProcessLookupError):
            continue
    return found


def _log_of(pid: int) -> str:
    """Return the name of a worker: its output is its log."""
    try:
        return Path(os.readlink(f"/proc/{pid}/fd/1")).stem
    except (FileNotFoundError, ProcessLookupError):
        return ""
