"""Identifies processes: the kernel gives the id of a process that has ended to another one, and
all ids again after a restart."""

from __future__ import annotations

import contextlib
import errno
import os
import signal
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, kw_only=True, slots=True)
class ProcessId:
    """A process of this machine, which cannot be mistaken for a later one with the same id."""

    pid: int
    started: str
    """When the process began, as the kernel writes it."""
    boot: str
    """The id that the kernel gives to each start of the machine."""

    @classmethod
    def of(cls, pid: int) -> ProcessId:
        return cls(pid=pid, started=start_of(pid) or "", boot=boot_id())

    def lives(self) -> bool:
        """Whether it is running. A process that has ended but was not reaped yet does not count."""
        return self.boot == boot_id() and self.started == start_of(self.pid)

    def kill(self) -> bool:
        """Send SIGKILL if it surely reaches this very process; returns whether it was sent."""
        with contextlib.suppress(ProcessLookupError):
            handle = open_handle(self.pid)
            if handle is None:
                return False
            try:
                if self.lives():  # and so the handle is its own
                    signal.pidfd_send_signal(handle, signal.SIGKILL)
                    return True
            finally:
                os.close(handle)
        return False


def open_handle(pid: int) -> int | None:
    """Return a descriptor of the process, which becomes readable when the process ends; the caller
    closes it. None where the system has no such thing: before Linux 5.3, and in containers that
    forbid the call. Raises `ProcessLookupError`."""
    if not hasattr(os, "pidfd_open"):
        return None
    try:
        return os.pidfd_open(pid)
    except OSError as error:
        if error.errno in (errno.ENOSYS, errno.EPERM):
            return None
        raise


def ending(code: int) -> str:
    """How a process with this exit code has ended, in words. A negative number is a signal."""
    if code == -signal.SIGXCPU:
        return "SIGXCPU: it has used up its processor time, see `ulimit -t`"
    if code < 0:
        with contextlib.suppress(ValueError):
            return signal.Signals(-code).name
    return f"exit code {code}"


def boot_id() -> str:
    """Return the kernel's id of the machine's last start; empty if the system has none."""
    path = Path("/proc/sys/kernel/random/boot_id")
    return path.read_text(encoding="utf-8").strip() if path.exists() else ""


def pid_namespace() -> str:
    """Return this process's namespace of process ids; empty if there is none."""
    try:
        return os.readlink("/proc/self/ns/pid")
    except OSError:
        return ""


def start_of(pid: int) -> str | None:
    """Return when the process began; None if there is none, or it has ended."""
    try:
        after_name = (
            Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
        )
    except FileNotFoundError:
        if Path("/proc/self").exists():
            return None
        return _alive_without_proc(pid)
    except ProcessLookupError:
        return None
    state, start = after_name[0], after_name[19]
    return None if state in "ZX" else start


def _alive_without_proc(pid: int) -> str | None:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return None
    except PermissionError:
        pass  # somebody else's
    return ""
