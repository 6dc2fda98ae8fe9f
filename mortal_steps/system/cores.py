"""How many processes can compute at a time."""

from __future__ import annotations

import os
import sys
from pathlib import Path

CGROUPS = Path("/sys/fs/cgroup")
OWN = Path("/proc/self/cgroup")


def num_cores() -> int:
    """Cores that this process may use, by its affinity and by the quotas of its cgroups."""
    cores = len(os.sched_getaffinity(0)) if sys.platform == "linux" else os.cpu_count() or 1
    quota = quota_cores(CGROUPS, OWN.read_text()) if OWN.exists() else None
    return cores if quota is None else max(1, min(cores, int(quota)))


def quota_cores(cgroups: Path, own: str) -> float | None:
    """Return the lowest quota, in cores, of the cgroup that a process is in and of those above.

    `cgroups`: where they are mounted. `own`: what /proc/PID/cgroup says. In a container the path
    that it says may be the host's; then the cgroup that is mounted is the container's.
    """
    found: list[float] = []
    for line in own.splitlines():
        _, controllers, path = line.split(":", 2)
        if controllers == "":
            lowest = cgroups / path.strip("/")
            folders = [each for each in (lowest, *lowest.parents) if each.is_relative_to(cgroups)]
            found += [quota for each in folders if (quota := _quota(each)) is not None]
    return min(found, default=None)


def _quota(folder: Path) -> float | None:
    if not (folder / "cpu.max").exists():
        return None
    quota, period = (folder / "cpu.max").read_text().split()
    return None if quota == "max" else int(quota) / int(period)
