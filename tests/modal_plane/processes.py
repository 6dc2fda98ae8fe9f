"""The processes of a container: nothing of it may stay behind."""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
from pathlib import Path

from tests.modal_plane.types import Container

PR_SET_PDEATHSIG = 1
ARGUMENTS_VARIABLE = "MODAL_CONTAINER_ARGUMENTS_PATH"
"""Set for a container's process and so for all that it starts; no two containers share a path."""


def end_with_parent() -> None:
    """Have this process told to stop when the one that started it is gone."""
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGTERM)


def arguments_file(container: Container) -> Path:
    """What the container's entrypoint reads to learn what it runs."""
    return container.directory / "args.bin"


def kill_everything(container: Container) -> None:
    """SIGKILL to the container's process and to everything that descends from it."""
    if container.is_running and container.process is not None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(container.process.pid, signal.SIGKILL)
    mark = f"{ARGUMENTS_VARIABLE}={arguments_file(container)}".encode()
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError):  # ended meanwhile, or another user's
                if mark in (entry / "environ").read_bytes().split(b"\0"):
                    os.kill(int(entry.name), signal.SIGKILL)
