"""The processes of a container or sandbox: nothing of them may stay behind."""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import os
import signal
from asyncio.subprocess import Process
from pathlib import Path

DIRECTORY_VARIABLE = "PLANE_DIRECTORY"
"""Names the container's directory, which no two share, to its process and so to all it starts."""
PR_SET_PDEATHSIG = 1


def end_with_parent() -> None:
    """Have this process told to stop when the one that started it is gone."""
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGTERM)


async def process_ended(process: Process) -> None:
    """Until the process itself has ended; `Process.wait` waits for the end of its output too."""
    loop = asyncio.get_running_loop()
    ended = asyncio.Event()
    try:
        descriptor = os.pidfd_open(process.pid)
    except ProcessLookupError:  # ended and reaped
        return
    loop.add_reader(descriptor, ended.set)
    try:
        await ended.wait()
    finally:
        loop.remove_reader(descriptor)
        os.close(descriptor)


def kill_everything(process: Process | None, directory: Path) -> None:
    """SIGKILL to a container's process and to everything that descends from it.

    Args:
        directory: The container's, to know its processes by.
    """
    if process is not None and process.returncode is None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
    mark = f"{DIRECTORY_VARIABLE}={directory}".encode()
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError):  # ended meanwhile, or another user's
                if mark in (entry / "environ").read_bytes().split(b"\0"):
                    os.kill(int(entry.name), signal.SIGKILL)
