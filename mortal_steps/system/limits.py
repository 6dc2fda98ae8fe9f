"""What a process may take of the machine."""

from __future__ import annotations

import errno
import resource
import sys
from pathlib import Path

REMEDIES = {
    errno.EMFILE: "raise the limit of open files, `ulimit -n 4096`",
    errno.ENFILE: "close other programs: no process of this machine can open another file",
    errno.EAGAIN: "raise the limit of processes, `ulimit -u`, or that of the container",
    errno.ENOMEM: "free some memory",
}

ENOUGH_ADDRESS_SPACE = 4 * 2**30
"""Bytes. A worker with PyTorch's CPU build takes between 1.5 and 2.5 GB for the smallest model."""


def remedy(error: OSError) -> str:
    """The end of an error message, if a limit of the machine is reached; otherwise nothing."""
    told = REMEDIES.get(error.errno or 0)
    return f"; {told}" if told else ""


def address_space_warning() -> str | None:
    """What to say of a limit of address space that workers may not start under."""
    limit, _ = resource.getrlimit(resource.RLIMIT_AS)
    if limit == resource.RLIM_INFINITY or limit >= ENOUGH_ADDRESS_SPACE:
        return None
    return (
        f"processes may take {limit / 2**30:.1f} GB of address space (`ulimit -v`), and PyTorch "
        "needs more: workers may end, or wait for ever. Remove the limit, `ulimit -v unlimited`"
    )


def limit_memory(further: int) -> None:
    """Let this process and those forked from it have `further` bytes of address space more than
    now; what they allocate beyond that fails. A lower limit that is set already stays. Elsewhere
    than on Linux there is no limit."""
    if sys.platform == "linux":
        pages = int(Path("/proc/self/statm").read_text().split()[0])
        limit = pages * resource.getpagesize() + further
        _, hard = resource.getrlimit(resource.RLIMIT_AS)
        if hard != resource.RLIM_INFINITY:
            limit = min(limit, hard)
        resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
