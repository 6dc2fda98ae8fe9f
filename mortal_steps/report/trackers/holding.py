"""One process at a time writes a run's record in a tracker.

The lock is on the file that the process prints to, for what a tracker starts inherits that, such as
W&B's process, and holds the lock until it has ended.
"""

from __future__ import annotations

import fcntl
import json
import os
import time
from dataclasses import asdict
from pathlib import Path

from mortal_steps.errors import StoreError
from mortal_steps.store.files import write_atomically
from mortal_steps.system.processes import ProcessId

WAIT_S = 90.0
"""Longest time to wait for a process that is about to end."""
TRY_EVERY_S = 0.2


def hold(folder: Path, name: str, *, lock: int) -> None:
    """Become the process that writes to this tracker; `lock` is the descriptor of its log.

    Waits for one that is about to end, and for what a killed one has started, which its supervisor
    ends. Raises `StoreError` while another process follows the run.
    """
    began = time.monotonic()
    while not _locked(lock):
        waited = time.monotonic() - began
        if waited > WAIT_S:
            holder = holder_of(folder, name)
            who = f"process {holder.pid}" if holder else "a process that has no record"
            raise StoreError(f"{who} brings the run to {name} already, until its flow ends")
        time.sleep(TRY_EVERY_S)
    folder.mkdir(exist_ok=True)
    this = json.dumps(asdict(ProcessId.of(os.getpid()))).encode()
    write_atomically(_record(folder, name), this)


def holder_of(folder: Path, name: str) -> ProcessId | None:
    """The process that sends the run to this tracker; None if there is none."""
    try:
        holder = ProcessId(**json.loads(_record(folder, name).read_bytes()))
    except (FileNotFoundError, ValueError, TypeError):
        return None
    return holder if holder.lives() else None


def _record(folder: Path, name: str) -> Path:
    return folder / f"{name.replace(':', '.')}.json"


def _locked(lock: int) -> bool:
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
