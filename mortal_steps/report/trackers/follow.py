"""The process that brings a run to one tracker, started as
`python -m mortal_steps.report.trackers.follow RUN_DIR TRACKER CHANNEL`.

The channel is a socket. First comes the configuration, in a line; when the owner closes its side,
or dies, the process tells the tracker what is committed by then, and ends. The process answers in
lines of JSON: `{"step": 12}`, the last step that the tracker has, or `{"error": "..."}`.

Where it goes on is read from the tracker's own record, so a kill of any process makes no step miss
or come twice. Two processes at one record could, so each holds a lock.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import select
import socket
import sys
import time
from pathlib import Path

from mortal_steps.config import RunConfig
from mortal_steps.errors import MortalError, StoreError
from mortal_steps.report.trackers import FOLDER
from mortal_steps.report.trackers.base import Tracker, make_tracker, tracked_run
from mortal_steps.report.trackers.committed import CommittedSteps
from mortal_steps.runs.run import Run, find_run
from mortal_steps.store.files import lock_file

LOOK_EVERY_S = 1.0
LOCK_WITHIN_S = 10.0
"""Longest time to wait for a process that is about to end."""
NICENESS = 10
"""Below the processes that train and sample."""


class Owner:
    """The process that started this one, at the other end of the channel."""

    def __init__(self, channel: socket.socket) -> None:
        self._channel = channel
        self._begun = channel.makefile("rb").readline()

    @property
    def config(self) -> RunConfig:
        """The configuration that the run goes on with."""
        return RunConfig.model_validate_json(self._begun)

    def tell(self, **facts: object) -> None:
        """Send an answer; if the owner has died, it is dropped."""
        with contextlib.suppress(OSError):
            self._channel.sendall(json.dumps(facts).encode() + b"\n")

    def wait_for_end(self, seconds: float) -> bool:
        """Wait so many seconds; returns whether the owner has ended or asks this process to end."""
        return bool(select.select([self._channel], [], [], seconds)[0])


def main() -> None:
    """Follow the run until the owner ends."""
    os.nice(NICENESS)
    run_dir, name, descriptor = Path(sys.argv[1]), sys.argv[2], int(sys.argv[3])
    owner = Owner(socket.socket(fileno=descriptor))
    try:
        found = find_run(run_dir.parent, run_dir.name)
        run = Run(found.store, owner.config, found.info)
        _lock(name)
        run.store.path(FOLDER).mkdir(exist_ok=True)
        tracker = make_tracker(name, tracked_run(run))
        follow(run, tracker, owner)
        tracker.close()
    except MortalError as error:
        owner.tell(error=str(error))
        raise SystemExit(1) from error
    except Exception as error:
        owner.tell(error=f"{type(error).__name__}: {error}")
        raise
    owner.tell(closed=True)


def _lock(name: str) -> None:
    """Become the one process that writes to this tracker. Raises `StoreError` while another one
    does.

    The lock is on the log that this process prints to, because what a tracker starts inherits that,
    such as W&B's process, and holds the lock until it has ended.
    """
    log = sys.stdout.fileno()
    deadline = time.monotonic() + LOCK_WITHIN_S
    while not lock_file(log, fcntl.LOCK_EX | fcntl.LOCK_NB, Path(f"/dev/fd/{log}")):
        if time.monotonic() > deadline:
            raise StoreError(f"another process brings the run to {name} already")
        time.sleep(0.2)


def follow(run: Run, tracker: Tracker, owner: Owner) -> None:
    """Send each step to the tracker once it is committed, until the owner ends."""
    committed = CommittedSteps(run)
    found = tracker.last_step()
    last = -1 if found is None else found
    owner.tell(step=last)
    ended = False
    while not ended:
        ended = owner.wait_for_end(LOOK_EVERY_S)
        before = last
        for entry in committed.new(after=last):
            tracker.log(entry)
            last = entry.step
        if last > before:
            tracker.flush()
            owner.tell(step=last)


if __name__ == "__main__":
    main()
