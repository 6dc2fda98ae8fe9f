"""How many processes can compute at a time, how much memory one may still take, how many files it
may open."""

import contextlib
import os
import resource
import sys
from pathlib import Path

CGROUPS = Path("/sys/fs/cgroup")
OWN = Path("/proc/self/cgroup")
MEMINFO = Path("/proc/meminfo")


def num_cores() -> int:
    """Cores that this process may use, by its affinity and by the quotas of its cgroups."""
    cores = len(os.sched_getaffinity(0)) if sys.platform == "linux" else os.cpu_count() or 1
    quota = quota_cores(CGROUPS, OWN.read_text(encoding="utf-8")) if OWN.exists() else None
    return cores if quota is None else max(1, min(cores, int(quota)))


def quota_cores(cgroups: Path, own: str) -> float | None:
    """Return the lowest quota, in cores, of the cgroup that a process is in and of those above.
    `cgroups`: where they are mounted. `own`: what /proc/PID/cgroup says. In a container the path
    that it says may be the host's; then the cgroup that is mounted is the container's."""
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
    quota, period = (folder / "cpu.max").read_text(encoding="utf-8").split()
    return None if quota == "max" else int(quota) / int(period)


def raise_file_limit() -> None:
    """Let this process, and what it starts, open as many files as the system allows it to."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        with contextlib.suppress(OSError, ValueError):  # macOS has a lower limit of its own
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def available_bytes() -> int | None:
    """Return what this process can allocate without swapping: of the machine, or of its container
    where that allows less. None where the system does not tell (elsewhere than on Linux)."""
    machine = _numbers(MEMINFO).get("MemAvailable:")
    if machine is None:
        return None
    return min([1024 * machine, *_left_in_container()])


def total_bytes() -> int | None:
    """Return the memory of the machine, or of its container where that has less; None where the
    system does not tell."""
    try:
        machine = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (OSError, ValueError):
        return None
    limit = _memory("max")
    return machine if limit is None else min(machine, limit)


def _left_in_container() -> list[int]:
    """Of a limit by version 2 of control groups, as containers have it; none without a limit."""
    limit, used = _memory("max"), _memory("current")
    if limit is None or used is None:
        return []
    files = _numbers(CGROUPS / "memory.stat").get("inactive_file", 0)  # given back when asked for
    return [max(0, limit - used + files)]


def _memory(what: str) -> int | None:
    """Return the container's bytes; None where there is no such number."""
    try:
        text = (CGROUPS / f"memory.{what}").read_text(encoding="utf-8").strip()
    except OSError:
        return None
    return int(text) if text.isdigit() else None


def _numbers(path: Path) -> dict[str, int]:
    """Return the second word of each line, where it is a number, by the first."""
    try:
        lines = [line.split() for line in path.read_text(encoding="utf-8").splitlines()]
    except OSError:
        return {}
    return {words[0]: int(words[1]) for words in lines if len(words) > 1 and words[1].isdigit()}
