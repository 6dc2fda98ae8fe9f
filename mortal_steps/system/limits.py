"""What a process may take of the machine."""

from __future__ import annotations

import errno
import resource

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
