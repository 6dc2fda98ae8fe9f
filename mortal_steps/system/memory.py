"""How much memory a process may still take."""

from __future__ import annotations

from pathlib import Path

MEMINFO = Path("/proc/meminfo")
CGROUP = Path("/sys/fs/cgroup")


def available_bytes() -> int | None:
    """Return what this process can allocate without swapping: of the machine, or of its container
    where that allows less. None where the system does not tell (elsewhere than on Linux)."""
    machine = _numbers(MEMINFO).get("MemAvailable:")
    if machine is None:
        return None
    return min([1024 * machine, *_left_in_container()])


def _left_in_container() -> list[int]:
    """Of a limit by version 2 of control groups, as containers have it; none without a limit."""
    try:
        limit = (CGROUP / "memory.max").read_text().strip()
        used = int((CGROUP / "memory.current").read_text())
    except (OSError, ValueError):
        return []
    if not limit.isdigit():
        return []
    files = _numbers(CGROUP / "memory.stat").get("inactive_file", 0)  # given back when asked for
    return [max(0, int(limit) - used + files)]


def _numbers(path: Path) -> dict[str, int]:
    """Return the second word of each line, where it is a number, by the first."""
    try:
        lines = [line.split() for line in path.read_text().splitlines()]
    except OSError:
        return {}
    return {words[0]: int(words[1]) for words in lines if len(words) > 1 and words[1].isdigit()}
