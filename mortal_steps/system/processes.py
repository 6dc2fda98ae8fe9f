"""Which process is which: ids of processes are given out again, and machines start anew."""

from __future__ import annotations

import contextlib
import errno
import os
import signal
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, kw_only=True, slots=True)
class ProcessId:
    """A process of this machine that no later one is taken for."""

    pid: int
    started: str
    """When the process began, in the kernel's words; tells it from a later one of the same id."""
    boot: str
    """The kernel's id of its last start."""

    @classmethod
    def of(cls, pid: int) -> ProcessId:
        """A process as it is now."""
        return cls(pid=pid, started=start_of(pid) or "", boot=boot_id())

    def lives(self) -> bool:
        """Whether it runs; dead and not yet buried counts as gone."""
        return self.boot == boot_id() and self.started == start_of(self.pid)

    def kill(self) -> bool:
        """SIGKILL, where the kernel lets one be sure to meet this very process; whether it did."""
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
    """A descriptor of the process, which becomes readable when the process ends; the caller closes
    it.

    None where the system has no such thing: before Linux 5.3, and in containers that forbid the
    call. Raises `ProcessLookupError`.
    """
    if not hasattr(os, "pidfd_open"):
        return None
    try:
        return os.pidfd_open(pid)
    except OSError as error:
        if error.errno in (errno.ENOSYS, errno.EPERM):
            return None
        raise


def ending(code: int) -> str:
    """What is told of a process that has ended with this exit code, below zero for a signal."""
    if code == -signal.SIGXCPU:
        return "SIGXCPU: it has used up its processor time, see `ulimit -t`"
    if code < 0:
        with contextlib.suppress(ValueError):
            return signal.Signals(-code).name
    return f"exit code {code}"


def boot_id() -> str:
    """Empty where there is no such thing."""
    path = Path("/proc/sys/kernel/random/boot_id")
    return path.read_text().strip() if path.exists() else ""


def pid_namespace() -> str:
    """Where this process's id is one; the same for all but containers. Empty where there is no such
    thing."""
    try:
        return os.readlink("/proc/self/ns/pid")
    except OSError:
        return ""


def start_of(pid: int) -> str | None:
    """When the process began; None if there is none, or it is dead and only not yet buried."""
    try:
        after_name = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
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
