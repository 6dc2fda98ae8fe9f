"""What became of a process."""

import contextlib
import os
import time
from pathlib import Path

INSIDE = "mortal_steps.hosts.inside"


def is_alive(pid: int) -> bool:
    """Whether the process is there and not just a zombie."""
    with contextlib.suppress(FileNotFoundError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    return False


def assert_ends(pid: int) -> None:
    """Wait until the process is gone."""
    deadline = time.monotonic() + 60
    while is_alive(pid):
        assert time.monotonic() < deadline, f"process {pid} is still there"
        time.sleep(0.02)


def supervisors() -> set[int]:
    """Supervisors of hosts that this process has started; other tests may have left some."""
    found = set()
    for entry in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            started_by = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
            if started_by == os.getpid() and INSIDE in (entry / "cmdline").read_text().split("\0"):
                found.add(int(entry.name))
    return found
