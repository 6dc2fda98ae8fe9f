"""The one process that may drive a run holds a lease on its directory.

    lock          a file lock of the driver's, which its workers inherit: the kernel frees it when
                  the last of them is gone, so no old actor can write beside a new one
    lease.json    who holds it, renewed every few seconds: for file systems that machines share,
                  where file locks do not reach

Each of them alone keeps a second driver out. Whether the holder in lease.json still holds the lease
depends on where it is:

    a process that can be seen from here    it holds the lease while it lives
    in another container of this machine    the file lock decides
    on another machine                      it holds the lease until it has not renewed it for
                                            `LEASE_TTL_S`. Clocks may be wrong, so a lease whose
                                            time is over, or in the future, is watched for a while

A driver that finds another one's token in the record has lost the run.

Two cases are not covered. Somebody deletes `lock` while workers of a dead driver are still ending:
a new driver does not wait for them. Or somebody deletes lease.json while a driver on another
machine holds it, where file locks do not reach. The driver writes it again within `RENEW_EVERY_S`;
or it finds the token of a driver that has come meanwhile, and stops at its next write. If a
machine's clock is ahead by less than `LEASE_TTL_S`, its lease lasts longer by that time.
"""

from __future__ import annotations

import contextlib
import fcntl
import logging
import os
import socket
import threading
import time
import uuid
from dataclasses import dataclass, replace
from pathlib import Path

from mortal_steps.errors import CorruptFileError, LeaseLostError, StoreError
from mortal_steps.runs.argument import run_argument
from mortal_steps.store import RunStore
from mortal_steps.store.files import lock_file, writing
from mortal_steps.system.processes import boot_id, pid_namespace, start_of

logger = logging.getLogger(__name__)

LEASE_TTL_S = 60.0
"""Seconds for which another machine's lease is valid without being renewed."""
RENEW_EVERY_S = 5.0
WATCHED_FOR_RENEWALS = 2.5
"""A lease of another machine that looks old is watched for this many times `RENEW_EVERY_S`."""
ORPHANS_GO_S = 10.0
"""Seconds that the workers of a dead driver may take to end. It takes milliseconds, unless one of
them is in a system call that cannot be interrupted."""

RECORD_FILE = "lease.json"
LOCK_FILE = "lock"


@dataclass(frozen=True, kw_only=True, slots=True)
class LeaseRecord:
    """The process that drives a run."""

    host: str
    boot: str
    """The kernel's id of its last start, which no two machines share, as they may a name."""
    pid: int
    started: str
    """When the process began, as the kernel writes it: a later one may have the same id."""
    token: str
    """Random; new with every lease."""
    renewed_at: float
    """Seconds since the epoch, by the holder's clock."""
    namespace: str = ""
    """Of its process ids: a container has its own, in which an id names another process. Empty
    where that was not noted."""

    @classmethod
    def of_this_process(cls) -> LeaseRecord:
        return cls(
            host=socket.gethostname(),
            boot=boot_id(),
            pid=os.getpid(),
            started=start_of(os.getpid()) or "",
            token=uuid.uuid4().hex,
            renewed_at=time.time(),
            namespace=pid_namespace(),
        )

    def is_here(self) -> bool:
        """Return whether the holder is, or was, a process of this machine that can be seen from
        here."""
        return self.is_of_this_machine() and self.namespace in ("", pid_namespace())

    def is_of_this_machine(self) -> bool:
        """Return whether it is one of this machine, maybe in another container."""
        return (self.host, self.boot) == (socket.gethostname(), boot_id())

    def holds(self) -> bool:
        """Return whether the holder still drives the run, as far as can be seen from here."""
        if self.is_here():
            return self.started == start_of(self.pid)
        return abs(time.time() - self.renewed_at) < LEASE_TTL_S

    def age_s(self) -> float:
        """Return the seconds since the lease was last renewed; 0 if its clock is ahead of ours."""
        return max(0.0, time.time() - self.renewed_at)


class Lease:
    """A lease held by this process; `acquire` makes one."""

    def __init__(self, store: RunStore, lock: int, record: LeaseRecord) -> None:
        """`lock` is the descriptor of the locked file."""
        self._store = store
        self._lock = lock
        self._record = record
        self._released = threading.Event()
        self._renewing = threading.Thread(target=self._renew, name="lease", daemon=True)
        self._renewing.start()

    def filenos(self) -> tuple[int, ...]:
        """Return the descriptor of the lock, for workers to inherit: who has it still holds it."""
        return (self._lock,)

    def check(self) -> None:
        """Raise `LeaseLostError` if another process has taken the run over."""
        holder = read_lease(self._store)
        if holder is not None and holder.token != self._record.token:
            raise LeaseLostError(
                f"{self._store.root} was taken over by process {holder.pid} on {holder.host}, "
                f"because this process did not renew its lease for {LEASE_TTL_S:.0f} s. This "
                "process writes nothing more; the run continues there."
            )

    def release(self) -> None:
        self._released.set()
        self._renewing.join()
        try:
            with contextlib.suppress(LeaseLostError):
                self.check()
                self._store.path(RECORD_FILE).unlink(missing_ok=True)
        finally:
            os.close(self._lock)

    def move_away(self, target: Path) -> None:
        """Rename the run directory together with its lease, and release the lock: the run no longer
        exists. Raises `LeaseLostError`, and `OSError` if the directory cannot be renamed; the run
        is then as it was."""
        self._released.set()
        self._renewing.join()
        try:
            self.check()
            self._store.root.rename(target)
        except BaseException:
            self.release()
            raise
        os.close(self._lock)

    def _renew(self) -> None:
        while not self._released.wait(RENEW_EVERY_S):
            try:
                self.check()
                renewed = replace(self._record, renewed_at=time.time())
                self._store.write_record(RECORD_FILE, renewed, LeaseRecord)
            except LeaseLostError as error:
                logger.error("%s", error)
                return
            except (StoreError, OSError) as error:  # such as a full disk; here the lock holds
                logger.warning("the lease is not renewed: %s", error)


def acquire(store: RunStore) -> Lease:
    """Become the one process that drives the run. Raises `StoreError`, which names the other
    process, or what cannot be written."""
    lock = _open_lock(store)
    try:
        _lock_or_refuse(store, lock)
        _refuse_beside(store, read_lease(store))
        record = LeaseRecord.of_this_process()
        store.write_record(RECORD_FILE, record, LeaseRecord)
    except BaseException:
        os.close(lock)
        raise
    return Lease(store, lock, record)


def is_driven(store: RunStore) -> bool:
    """Return whether some process drives the run. This takes no lock, so it disturbs nobody."""
    holder = read_lease(store)
    return holder is not None and holder.holds()


def refuse_if_driven(store: RunStore) -> None:
    """Raise `StoreError`, which names the process, if one drives the run. Takes no lock: of two
    that begin at once, `acquire` refuses one."""
    holder = read_lease(store)
    if holder is not None and holder.holds():
        raise StoreError(_in_use(store, holder))


def read_lease(store: RunStore) -> LeaseRecord | None:
    """Return the last holder that did not release the lease; a damaged record counts as none."""
    try:
        found = store.find_record(RECORD_FILE, LeaseRecord)
    except CorruptFileError:
        return None
    return found[1] if found else None


def _open_lock(store: RunStore) -> int:
    path = store.path(LOCK_FILE)
    with writing(path):
        store.root.mkdir(parents=True, exist_ok=True)
        return os.open(path, os.O_RDWR | os.O_CREAT, 0o644)


def _lock_or_refuse(store: RunStore, lock: int) -> None:
    """Take the lock; wait a little for what a dead holder left, or for a new holder's record."""
    path, deadline = store.path(LOCK_FILE), time.monotonic() + ORPHANS_GO_S
    while not lock_file(lock, fcntl.LOCK_EX | fcntl.LOCK_NB, path):
        refuse_if_driven(store)
        if time.monotonic() > deadline:
            raise StoreError(_held(store, read_lease(store)))
        time.sleep(0.05)
    if not path.exists() or not os.path.samestat(os.fstat(lock), path.stat()):
        raise StoreError(f"run {store.root.name} was removed from {store.root.parent} just now")


def _refuse_beside(store: RunStore, holder: LeaseRecord | None) -> None:
    """Raise `StoreError` if the holder drives the run, whatever became of its lock."""
    if holder is None or (holder.is_of_this_machine() and not holder.is_here()):
        return  # what another container of this machine left: its lock tells
    if holder.holds():
        raise StoreError(_in_use(store, holder))
    if not holder.is_here() and _is_renewed(store, holder):
        raise StoreError(
            f"run {store.root.name} is in use by process {holder.pid} on {holder.host}, which has "
            f"just renewed its lease. By this machine's clock that was {holder.age_s():.0f} s ago; "
            "set the clocks of both machines to the same time"
        )


def _is_renewed(store: RunStore, holder: LeaseRecord) -> bool:
    deadline = time.monotonic() + WATCHED_FOR_RENEWALS * RENEW_EVERY_S
    while time.monotonic() < deadline:
        time.sleep(RENEW_EVERY_S / 10)
        found = read_lease(store)
        if found is not None and found != holder:
            return True
    return False


def _in_use(store: RunStore, holder: LeaseRecord) -> str:
    named = run_argument(store.root)
    used = f"run {store.root.name} is in use by process {holder.pid} on {holder.host}"
    look = f"`mortal show {named}` shows how far it is"
    if holder.is_here():
        return f"{used}; {look}, and `mortal stop {named}` stops it cleanly"
    return (
        f"{used}, which renewed its lease {holder.age_s():.0f} s ago; {look}. If that process is "
        f"gone, the run can be taken over in {LEASE_TTL_S - holder.age_s():.0f} s"
    )


def _held(store: RunStore, holder: LeaseRecord | None) -> str:
    path = store.path(LOCK_FILE)
    named = f"`fuser -v {path}` names"
    if holder is None:
        return (
            f"run {store.root.name} is in use: some process holds {path}, and {RECORD_FILE}, which "
            f"would name it, is gone; {named} it"
        )
    return (
        f"run {store.root.name} was driven by process {holder.pid} on {holder.host}, which is "
        f"gone, but processes that it started still hold {path}; end them ({named} them)"
    )
