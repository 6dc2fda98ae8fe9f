"""The process that brings a run to one tracker, started as
`python -m mortal_steps.report.trackers.follow RUN_DIR TRACKER CHANNEL`.

The channel is a socket. First comes the configuration, in a line; when the owner closes its side,
or dies, the process sends the tracker what is committed by then, and ends. The process answers in
lines of JSON: `{"step": 12}`, the last step that the tracker has, or `{"error": "..."}`.

Where it goes on is read from the tracker's own record, so a kill of any process makes no step miss
or come twice. Two processes at one record could, so each holds a lock.
"""

import contextlib
import fcntl
import json
import os
import select
import socket
import sys
import time
from pathlib import Path

from mortal_steps.errors import MortalError, StoreError
from mortal_steps.report.trackers import FOLDER
from mortal_steps.report.trackers.base import Tracker, tracked_run
from mortal_steps.report.trackers.committed import CommittedSteps
from mortal_steps.report.trackers.table import TRACKERS
from mortal_steps.runs.run import Run, find_run
from mortal_steps.store.files import lock_file

LOOK_EVERY_S = 1.0
LOCK_WITHIN_S = 10.0
"""Longest time to wait for a process that is about to end."""
NICENESS = 10
"""Below the processes that train and sample."""


def main() -> None:
    """Follow the run until the owner ends."""
    os.nice(NICENESS)
    run_dir, name, descriptor = Path(sys.argv[1]), sys.argv[2], int(sys.argv[3])
    owner = socket.socket(fileno=descriptor)
    config = json.loads(owner.makefile("rb").readline())
    try:
        run = find_run(run_dir.parent, run_dir.name)
        _lock(name)
        run.store.path(FOLDER).mkdir(exist_ok=True)
        tracker: Tracker = TRACKERS.load(name)(tracked_run(run, config))
        follow(run, tracker, owner, config["logging"]["sample_steps"])
        tracker.close()
    except MortalError as error:
        _report(owner, error=str(error))
        raise SystemExit(1) from error
    except Exception as error:
        _report(owner, error=f"{type(error).__name__}: {error}")
        raise
    _report(owner, closed=True)


def _report(owner: socket.socket, **facts: object) -> None:
    """Send an answer; if the owner has died, it is dropped."""
    with contextlib.suppress(OSError):
        owner.sendall(json.dumps(facts).encode() + b"\n")


def _lock(name: str) -> None:
    """Become the one process that writes to this tracker. Raises `StoreError` while another one
    does. The lock is on the log that this process prints to, because what a tracker starts inherits
    that, such as W&B's process, and holds the lock until it has ended."""
    log = sys.stdout.fileno()
    deadline = time.monotonic() + LOCK_WITHIN_S
    while not lock_file(log, fcntl.LOCK_EX | fcntl.LOCK_NB, Path(f"/dev/fd/{log}")):
        if time.monotonic() > deadline:
            raise StoreError(f"another process brings the run to {name} already")
        time.sleep(0.2)


def follow(run: Run, tracker: Tracker, owner: socket.socket, sample_steps: int) -> None:
    """Send each step to the tracker once it is committed, until the owner ends."""
    committed = CommittedSteps(run, sample_steps)
    found = tracker.last_step()
    last = -1 if found is None else found
    _report(owner, step=last)
    ended = False
    while not ended:
        ended = bool(select.select([owner], [], [], LOOK_EVERY_S)[0])
        before = last
        for entry in committed.new(after=last):
            tracker.log(entry)
            last = entry.step
        if last > before:
            tracker.flush()
            _report(owner, step=last)


if __name__ == "__main__":
    main()
