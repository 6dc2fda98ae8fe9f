"""The one process that may drive a run holds a lease on its directory.

    lock          a file lock of the driver's, which its workers inherit: the kernel frees it when
                  the last of them is gone, so no old actor can write beside a new one
    lease.json    who holds it, renewed every few seconds: for file systems that machines share,
                  where file locks do not reach

On one machine the lock decides. Another machine's lease is honoured until it was not renewed for
`LEASE_TTL_S`. A driver that finds another one's token in the record has lost the run.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import logging
import os
import socket
import threading
import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import IO

from mortal_steps.errors import CorruptFileError, LeaseLostError, StoreError
from mortal_steps.files import writing
from mortal_steps.processes import boot_id, start_of
from mortal_steps.store import RunStore

logger = logging.getLogger(__name__)

LEASE_TTL_S = 60.0
"""How long another machine's lease holds without being renewed."""
RENEW_EVERY_S = 5.0
LOOK_EVERY_S = 1.0
"""Between two looks at a lease that is waited for."""
ORPHANS_GO_S = 10.0
"""How long the workers of a dead driver may take to end; they do so in milliseconds, unless one is
in a call to the kernel that cannot be broken off."""

LOCK_FILE = "lock"
RECORD_FILE = "lease.json"


@dataclass(frozen=True, kw_only=True, slots=True)
class LeaseRecord:
    """Who drives a run."""

    host: str
    boot: str
    """The kernel's id of its last start: two machines may have one name, never one of these."""
    pid: int
    started: str
    """When the process began, in the kernel's words; tells it from a later one of the same id."""
    token: str
    """Random; new with every lease."""
    renewed_at: float
    """Seconds since the epoch, by the holder's clock."""

    @classmethod
    def of_this_process(cls) -> LeaseRecord:
        """A new one, renewed now."""
        return cls(
            host=socket.gethostname(),
            boot=boot_id(),
            pid=os.getpid(),
            started=start_of(os.getpid()) or "",
            token=uuid.uuid4().hex,
            renewed_at=time.time(),
        )

    def is_here(self) -> bool:
        """Whether the holder is, or was, a process of this machine."""
        return (self.host, self.boot) == (socket.gethostname(), boot_id())

    def holds(self) -> bool:
        """Whether the holder still drives the run, as far as can be told from here."""
        if self.is_here():
            return self.started == start_of(self.pid)
        return self.age_s() < LEASE_TTL_S

    def age_s(self) -> float:
        """Seconds since it was last renewed; a clock ahead of ours makes it 0."""
        return max(0.0, time.time() - self.renewed_at)


class Lease:
    """A lease held by this process; `acquire` makes one."""

    def __init__(self, store: RunStore, lock: IO[str], record: LeaseRecord) -> None:
        self._store = store
        self._lock = lock
        self._record = record
        self._released = threading.Event()
        self._renewing = threading.Thread(target=self._renew, name="lease", daemon=True)
        self._renewing.start()

    def fileno(self) -> int:
        """Descriptor of the lock, for workers to inherit."""
        return self._lock.fileno()

    def check(self) -> None:
        """Raise `LeaseLostError` if another process has taken the run over."""
        holder = read_lease(self._store)
        if holder is not None and holder.token != self._record.token:
            raise LeaseLostError(
                f"{self._store.root} was taken over by process {holder.pid} on {holder.host}, as "
                f"this process did not renew its lease for {LEASE_TTL_S:.0f} s; it writes nothing "
                "more. The run goes on there."
            )

    def release(self) -> None:
        """Let another process drive the run."""
        self._released.set()
        self._renewing.join()
        with contextlib.suppress(LeaseLostError):
            self.check()
            self._store.path(RECORD_FILE).unlink(missing_ok=True)
        self._lock.close()

    def _renew(self) -> None:
        while not self._released.wait(RENEW_EVERY_S):
            try:
                self.check()
                _write(self._store, replace(self._record, renewed_at=time.time()))
            except LeaseLostError as error:
                logger.error("%s", error)
                return
            except (StoreError, OSError) as error:  # a full disk, say; here the lock holds
                logger.warning("the lease is not renewed: %s", error)


def acquire(store: RunStore) -> Lease:
    """Become the one process that drives the run.

    Raises `StoreError`, which says who drives it, if another one does, or names what cannot be
    written.
    """
    with writing(store.path(LOCK_FILE)):
        store.root.mkdir(parents=True, exist_ok=True)
        lock = store.path(LOCK_FILE).open("a+")
    try:
        _lock_or_refuse(store, lock)
        holder = read_lease(store)
        if holder is not None and not holder.is_here() and holder.holds():
            raise StoreError(
                f"run {store.root.name} is in use by process {holder.pid} on {holder.host}, which "
                f"renewed its lease {holder.age_s():.0f} s ago; if that process is gone, the run "
                f"can be taken over in {LEASE_TTL_S - holder.age_s():.0f} s"
            )
        record = LeaseRecord.of_this_process()
        _write(store, record)
    except BaseException:
        lock.close()
        raise
    return Lease(store, lock, record)


def is_driven(store: RunStore) -> bool:
    """Whether some process drives the run; takes no lock, so it is in nobody's way."""
    holder = read_lease(store)
    return holder is not None and holder.holds()


async def wait_for_holder(store: RunStore, patience_s: float, say: Callable[[str], None]) -> bool:
    """Wait until nobody drives the run, for `patience_s` seconds at most; whether that is so.

    `say` is told whom it waits for, if anybody.
    """
    deadline = time.monotonic() + patience_s
    holder = read_lease(store)
    if holder is not None and holder.holds():
        say(
            f"process {holder.pid} on {holder.host} drives run {store.root.name}, and renewed its "
            f"lease {holder.age_s():.0f} s ago; waiting up to {patience_s:.0f} s for it to end"
        )
    while is_driven(store):
        if time.monotonic() > deadline:
            return False
        await asyncio.sleep(min(LOOK_EVERY_S, patience_s))
    return True


def read_lease(store: RunStore) -> LeaseRecord | None:
    """The record of the last holder who did not release; a damaged one counts as none."""
    try:
        found = store.find_record(RECORD_FILE, LeaseRecord)
    except CorruptFileError:
        return None
    return found[1] if found else None


def _lock_or_refuse(store: RunStore, lock: IO[str]) -> None:
    """Lock, waiting a little for what a dead holder left behind, or for a new one's record."""
    deadline = time.monotonic() + ORPHANS_GO_S
    while not _try_lock(lock):
        holder = read_lease(store)
        who = f"process {holder.pid} on {holder.host}" if holder else "an unknown process"
        if holder is not None and holder.holds():
            raise StoreError(f"run {store.root.name} is in use by {who}; wait for it, or stop it")
        if time.monotonic() > deadline:
            raise StoreError(
                f"run {store.root.name} was driven by {who}, which is gone, but processes that it "
                f"started still hold {store.path(LOCK_FILE)}; end them "
                f"(`fuser -v {store.path(LOCK_FILE)}` names them)"
            )
        time.sleep(0.05)


def _try_lock(lock: IO[str]) -> bool:
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _write(store: RunStore, record: LeaseRecord) -> None:
    store.write_record(RECORD_FILE, record, LeaseRecord)
