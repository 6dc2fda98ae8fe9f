"""What each fault does."""

import os
import signal
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

from benchmarks.nights.cluster import Cluster
from mortal_steps.runs.lease import read_lease
from mortal_steps.store import RunStore
from tests.support.chaos.processes import kill, process_ids

DISK_FULL_S = 6.0
OFF_S = 5.0
STALL_S = 6.0
CUT_S = 6.0
JUDGE_AWAY_S = 6.0
FOUND_WITHIN_S = 20.0


class NoTargetError(Exception):
    """There is no such process at the moment."""


def inflict(cluster: Cluster, run_dir: Path, fault: str) -> None:
    """Let it happen; returns when it is over. Raises `NoTargetError`."""
    faults: dict[str, Callable[[], object]] = {
        "flow": partial(_kill_of_run, run_dir, "flow"),
        "actor": partial(_kill_of_run, run_dir, "actor-0"),
        "rollout-0": partial(_kill_of_run, run_dir, "rollout-0"),
        "reward host": partial(_kill_of_run, run_dir, "host"),
        "worker": partial(_kill_worker, cluster),
        "server": partial(_kill_server, cluster),
        "machine": partial(cluster.machine.lose_power, OFF_S),
        "stalled line": partial(cluster.line.stall, STALL_S),
        "reset line": cluster.line.reset,
        "cut line": partial(cluster.line.drop, CUT_S),
        "judge": partial(cluster.judge.be_away, JUDGE_AWAY_S),
    }
    if cluster.disk is not None:
        faults["disk"] = partial(cluster.disk.be_full, DISK_FULL_S)
    faults[fault]()


def _kill_of_run(run_dir: Path, victim: str) -> None:
    deadline = time.monotonic() + FOUND_WITHIN_S
    while time.monotonic() < deadline:
        lease = read_lease(RunStore(run_dir))
        found = process_ids(lease.pid, victim) if lease is not None else []
        if found and kill(found[0]):
            return
        time.sleep(0.01)
    raise NoTargetError(f"no {victim} in {FOUND_WITHIN_S:g} s")


def _kill_worker(cluster: Cluster) -> None:
    (service,) = (each for each in cluster.machine.services if each.name == "worker")
    if service.process is None:
        raise NoTargetError("the worker has not been started")
    service.process.kill()


def _kill_server(cluster: Cluster) -> None:
    for pid in cluster.machine.process_ids():
        if b"mortal.server.process" in Path(f"/proc/{pid}/cmdline").read_bytes():
            os.kill(pid, signal.SIGKILL)
            return
    raise NoTargetError("no server just now")
