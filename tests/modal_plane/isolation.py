"""Starting a process as a container: in namespaces of its own, or plainly.

`namespaces`: launch.py gives the process a mount namespace over an overlay of this machine's file
system; what it writes outside its volumes is gone with it. As root, or in a user namespace.

`none`: for machines that allow neither. The process sees the machine as it is; volumes are shared
directories behind symbolic links, so there is no stale read, no `reload`, and two containers that
mount different volumes at one path disturb each other.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import subprocess
import sys
from asyncio.subprocess import Process
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from .options import Isolation

LAUNCHER = [sys.executable, "-I", "-S", str(Path(__file__).with_name("launch.py"))]


@dataclass(frozen=True, kw_only=True, slots=True)
class Bind:
    """A file or directory of this machine that a container sees at a path of its own."""

    source: str
    target: str
    read_only: bool = False
    is_volume: bool = False


@dataclass(frozen=True, kw_only=True, slots=True)
class Launch:
    """What launch.py is told."""

    directory: Path
    """Scratch space of the container."""
    arguments: Sequence[str]
    environment: Mapping[str, str]
    workdir: str
    binds: Sequence[Bind] = ()
    no_network: bool = False
    memory_mb: int = 0
    hide: Sequence[str] = ()
    join: int = 0
    """A process started from the same directory, whose namespaces are entered; 0 makes new ones."""

    def to_json(self) -> str:
        """As launch.py reads it."""
        return json.dumps({**asdict(self), "directory": str(self.directory / "layers")})


def check_namespaces(scratch: Path) -> None:
    """Start one process in namespaces.

    Raises:
        OSError: This machine does not allow it; says what to do.
    """
    scratch.mkdir(parents=True, exist_ok=True)
    spec = scratch / "check.json"
    launch = Launch(
        directory=scratch, arguments=["true"], environment=dict(os.environ), workdir="/"
    )
    spec.write_text(launch.to_json())
    done = subprocess.run([*LAUNCHER, str(spec)], capture_output=True, text=True, timeout=60)
    if done.returncode != 0:
        reason = (done.stderr.strip().splitlines() or [f"exit code {done.returncode}"])[-1]
        raise OSError(
            f"containers cannot have namespaces of their own here ({reason}). Run as root, or "
            "allow user namespaces (sysctl user.max_user_namespaces, and on Ubuntu "
            "kernel.apparmor_restrict_unprivileged_userns=0), or give --isolation none, where "
            "volumes are shared directories without commit and reload"
        )


async def start_process(
    launch: Launch, isolation: Isolation, *, stdin: int, stdout: int, stderr: int
) -> Process:
    """Start a container's process, as the leader of a session of its own."""
    if isolation == "namespaces":
        number = len(list(launch.directory.glob("launch-*.json")))
        spec = launch.directory / f"launch-{number}.json"
        spec.write_text(launch.to_json())
        return await asyncio.create_subprocess_exec(
            *LAUNCHER,
            str(spec),
            start_new_session=True,
            stdin=stdin,
            stdout=stdout,
            stderr=stderr,
        )
    root = launch.directory / "files" / "root"
    root.mkdir(parents=True, exist_ok=True)
    for bind in launch.binds:
        if bind.is_volume:
            _link(Path(bind.source), Path(bind.target))
    environment = {**launch.environment, "PYTHONPATH": str(root), "HOME": str(root)}
    return await asyncio.create_subprocess_exec(
        *launch.arguments,
        start_new_session=True,
        env=environment,
        cwd=root,
        stdin=stdin,
        stdout=stdout,
        stderr=stderr,
    )


async def wait_for_root(process: Process) -> None:
    """Until the process is in its container, so that others can join it, or has ended."""
    with contextlib.suppress(FileNotFoundError):
        while process.returncode is None and os.readlink(f"/proc/{process.pid}/root") == "/":
            await asyncio.sleep(0.005)


def _link(source: Path, target: Path) -> None:
    if target.exists() and not target.is_symlink():
        raise OSError(f"cannot show a volume at {target}: something else is there")
    target.parent.mkdir(parents=True, exist_ok=True)
    beside = target.with_name(f"{target.name}.{os.getpid()}")
    beside.symlink_to(source)
    beside.replace(target)
