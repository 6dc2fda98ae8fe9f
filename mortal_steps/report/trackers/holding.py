"""One process at a time writes a run's record in a tracker.

The lock is on the file that the process prints to, for what a tracker starts inherits that: W&B's
process goes on writing after a kill of the one that started it, and holds the lock until it has
ended.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import signal
import time
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path

from mortal_steps.errors import StoreError
from mortal_steps.store.files import write_atomically
from mortal_steps.system.processes import ProcessId

WAIT_S = 90.0
"""Longest time to wait for a process that is about to end."""
LEFT_BEHIND_S = 5.0
"""Seconds that processes left behind by a killed one get to end by themselves."""
TRY_EVERY_S = 0.2


def hold(folder: Path, name: str, *, lock: int) -> None:
    """Become the process that writes to this tracker; `lock` is the descriptor of its log.

    Waits for one that is about to end, and ends what a killed one has left behind. Raises
    `StoreError` while another process follows the run.
    """
    began = time.monotonic()
    while not _locked(lock):
        waited = time.monotonic() - began
        holder = holder_of(folder, name)
        if holder is None:
            if waited > LEFT_BEHIND_S:
                _end_holders(lock)
        elif waited > WAIT_S:
            raise StoreError(
                f"process {holder.pid} brings the run to {name} already, until its flow ends"
            )
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


def _end_holders(lock: int) -> None:
    """Kill what prints to the log beside this process: what the one before it had started."""
    for process in _processes_with(os.fstat(lock)):
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(process, signal.SIGKILL)


def _processes_with(log: os.stat_result) -> Iterator[int]:
    """Those that print to the log; one that reads it is somebody else's."""
    others = (int(name) for name in os.listdir("/proc") if name.isdigit())
    for process in (other for other in others if other != os.getpid()):
        with contextlib.suppress(OSError):  # it has ended, or is another user's
            prints_to = [os.stat(f"/proc/{process}/fd/{stream}") for stream in (1, 2)]
            if any(os.path.samestat(each, log) for each in prints_to):
                yield process
