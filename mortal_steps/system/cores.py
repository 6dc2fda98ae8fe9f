"""How many processes can compute at a time."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path

CGROUPS = Path("/sys/fs/cgroup")
OWN = Path("/proc/self/cgroup")


def num_cores() -> int:
    """Cores that this process may use, by its affinity and by the quotas of its cgroups."""
    cores = len(os.sched_getaffinity(0)) if sys.platform == "linux" else os.cpu_count() or 1
    quota = quota_cores(CGROUPS, OWN.read_text()) if OWN.exists() else None
    return cores if quota is None else max(1, min(cores, int(quota)))


def quota_cores(cgroups: Path, own: str) -> float | None:
    """The lowest quota, in cores, of the cgroups that a process is in and of those above.

    `cgroups`: where they are mounted. `own`: what /proc/PID/cgroup says. In a container the path
    that it says may be the host's; then the cgroup that is mounted is the container's.
    """
    found: list[float] = []
    for line in own.splitlines():
        _, controllers, path = line.split(":", 2)
        if controllers == "":
            tops = [cgroups]
        elif "cpu" in controllers.split(","):
            tops = [cgroups / controllers, cgroups / "cpu"]
        else:
            continue
        for top in tops:
            lowest = top / path.strip("/")
            for folder in (lowest, *lowest.parents):
                if folder.is_relative_to(top):
                    found += _quotas(folder)
    return min(found, default=None)


def _quotas(folder: Path) -> Iterator[float]:
    """Of one cgroup: version 2 has both numbers in one file."""
    if (both := folder / "cpu.max").exists():
        quota, period = both.read_text().split()
        if quota != "max":
            yield int(quota) / int(period)
    if (first := folder / "cpu.cfs_quota_us").exists() and int(first.read_text()) > 0:
        yield int(first.read_text()) / int((folder / "cpu.cfs_period_us").read_text())
