"""What a process may take of the machine."""

from __future__ import annotations

import resource
import sys
from pathlib import Path


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
