"""What each fault does."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

from benchmarks.nights.house import House
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


def inflict(house: House, run_dir: Path, fault: str) -> None:
    """Let it happen; returns when it is over. Raises `NoTargetError`."""
    faults: dict[str, Callable[[], object]] = {
        "flow": partial(_kill_of_run, run_dir, "flow"),
        "actor": partial(_kill_of_run, run_dir, "actor-0"),
        "rollout-0": partial(_kill_of_run, run_dir, "rollout-0"),
        "reward host": partial(_kill_of_run, run_dir, "host"),
        "worker": partial(_kill_worker, house),
        "server": partial(_kill_server, house),
        "machine": partial(house.machine.lose_power, OFF_S),
        "stalled line": partial(house.line.stall, STALL_S),
        "reset line": house.line.reset,
        "cut line": partial(house.line.drop, CUT_S),
        "judge": partial(house.judge.be_away, JUDGE_AWAY_S),
    }
    if house.disk is not None:
        faults["disk"] = partial(house.disk.be_full, DISK_FULL_S)
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


def _kill_worker(house: House) -> None:
    (service,) = (each for each in house.machine.services if each.name == "worker")
    if service.process is None:
        raise NoTargetError("the worker has not been started")
    service.process.kill()


def _kill_server(house: House) -> None:
    for pid in house.machine.process_ids():
        if b"mortal.server.process" in Path(f"/proc/{pid}/cmdline").read_bytes():
            os.kill(pid, signal.SIGKILL)
            return
    raise NoTargetError("no server just now")
