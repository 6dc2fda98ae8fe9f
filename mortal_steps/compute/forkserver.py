"""Workers that are forked from a process which has already imported what they need.

Importing torch and TRL takes a core some 7 s, and four processes of a small run do it: the check of
TRL's options, the actor and two rollout workers. Forked, the demo's first step comes after 17
seconds of CPU instead of 37. Python's own fork server would import the main module of the owner
into each worker, which for a deployment is Prefect, and block the owner while it imports.

`ForkServer` starts this module as `python -m mortal_steps.compute.forkserver FD MODULE...`. Each
order that arrives on the socket brings the descriptors of a new worker along. On the order's own
socket, the worker's exit status is answered; when the owner closes its side, the worker is killed.
"""

from __future__ import annotations

import asyncio
import atexit
import contextlib
import fnmatch
import importlib
import os
import pickle
import socket
import sys
import tempfile
import traceback
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

from mortal_steps.compute.base import WorkerSpec
from mortal_steps.compute.container import serve_owner
from mortal_steps.report.trackers.table import IMPORTED_BY_TRL
from mortal_steps.system.child import Child
from mortal_steps.system.forks import STATUS, serve_forks
from mortal_steps.system.gpus import has_gpu
from mortal_steps.system.imports import imports_without_gc
from mortal_steps.system.scratch import Scratch

LARGEST_ORDER = 64 * 1024
"""Bytes."""
LARGEST_OUTPUT = 64 * 1024
"""Bytes of what imports print that a worker's log begins with."""
OF_A_WORKER = ("OMP_NUM_THREADS", "TMPDIR", "PREFECT_*", "PYTEST_CURRENT_TEST")
"""Environment variables that no import reads, and that are set after the fork."""
OF_THE_SERVER = {
    # Threads that a library has started do not come along in a fork.
    "OMP_NUM_THREADS": "1",
    "JE_ARROW_MALLOC_CONF": "background_thread:false",
}


@dataclass(frozen=True, kw_only=True, slots=True)
class ForkOrder:
    """What a new worker is to be. With it come four descriptors or more: the socket of this order,
    the worker's socket, its output, and what else it shall keep open."""

    name: str
    working_dir: str
    environment: Mapping[str, str | None]
    """Where it differs from the server's own, as many orders wait in one small buffer; None: not
    set."""


class ForkedProcess:
    """A worker's process, for the event loop in which it was ordered."""

    def __init__(self, server: Child, answers: socket.socket) -> None:
        # No task: whoever cancels all tasks must not close the socket, which kills the worker.
        self._answers, self._server = answers, server
        self._loop = asyncio.get_running_loop()
        self._status: asyncio.Future[bytes] = self._loop.create_future()
        self._loop.add_reader(answers, self._ended)

    async def wait(self) -> int | None:
        """Return the exit code once the process has ended; if the server has, then the server's."""
        status = await asyncio.shield(self._status)
        if status:
            return int(STATUS.unpack(status)[0])
        return await asyncio.to_thread(self._server.wait)

    def has_ended(self) -> bool:
        return self._status.done() or self._loop.is_closed()

    def kill(self) -> None:
        with contextlib.suppress(OSError):  # it has ended
            self._answers.shutdown(socket.SHUT_WR)

    def _ended(self) -> None:
        self._loop.remove_reader(self._answers)
        status = b""
        with self._answers, contextlib.suppress(OSError):
            status = self._answers.recv(STATUS.size)
        self._status.set_result(status)


class ForkServer:
    """Imports `modules` once, and becomes a worker at each `fork`; ends with this process."""

    def __init__(self, python: str, modules: Sequence[str], environment: Mapping[str, str]) -> None:
        self._environment = {**environment, **OF_THE_SERVER}
        self.scratch = Scratch()
        """Folder for those of its workers."""
        self._control, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._control.setblocking(False)
        self._workers: list[ForkedProcess] = []
        module, scratch = "mortal_steps.compute.forkserver", self.scratch
        with theirs, tempfile.TemporaryFile() as output:
            self._child = Child(
                # -P: files of the working folder hide nothing installed
                [python, "-P", "-m", module, str(theirs.fileno()), *modules],
                output=output,
                pass_fds=[theirs.fileno(), scratch.fileno()],
                env={**self._environment, **scratch.environment()},
                scratch=scratch.path,
            )

    def lives(self) -> bool:
        return self._child.poll() is None

    def is_needed(self) -> bool:
        return any(not worker.has_ended() for worker in self._workers)

    def close(self) -> None:
        self._child.kill_all()
        self._control.close()
        self.scratch.remove()

    def fork(
        self,
        name: str,
        *,
        working_dir: str,
        environment: Mapping[str, str],
        descriptors: Sequence[int],
    ) -> ForkedProcess:
        """Order a worker, with its socket, its output and whatever else it shall keep open. It
        begins after the imports. Raises `OSError` if the server has ended."""
        changed = {**dict.fromkeys(self._environment), **environment}
        order = ForkOrder(
            name=name,
            working_dir=working_dir,
            environment={k: v for k, v in changed.items() if v != self._environment.get(k)},
        )
        answers, theirs = socket.socketpair()
        answers.setblocking(False)
        with theirs:
            passed = [theirs.fileno(), *descriptors]
            socket.send_fds(self._control, [pickle.dumps(order)], passed)
        worker = ForkedProcess(self._child, answers)
        self._workers = [one for one in (*self._workers, worker) if not one.has_ended()]
        return worker


Key = tuple[str, tuple[str, ...], frozenset[tuple[str, str]]]
_current: tuple[Key, ForkServer] | None = None
"""A run has one: its checks, its actor and its rollout workers need the same."""


def computes_on_cpu(spec: WorkerSpec) -> bool:
    """Return whether a worker of this machine has torch compute on its CPU."""
    return bool(spec.preload) and not spec.devices and not has_gpu()


def fork_server(spec: WorkerSpec, environment: Mapping[str, str]) -> ForkServer | None:
    """Return the server that a worker with this environment is forked from; start it if need be.

    None for a worker that has to be started as an interpreter of its own: its spec names no
    modules, or devices of its own, this machine has a GPU or is none with Linux, or a server for
    another environment has workers. Raises `OSError` for an interpreter that cannot be started.
    """
    global _current
    # If an import begins to use a GPU, processes that are forked later cannot use it.
    if not computes_on_cpu(spec) or sys.platform != "linux":
        return None
    python = spec.python or sys.executable
    shared = {name: value for name, value in environment.items() if not _is_of_a_worker(name)}
    key = (python, spec.preload, frozenset(shared.items()))
    if _current is not None:
        known, server = _current
        if server.lives():
            if known == key:
                return server
            if server.is_needed():
                return None
        server.close()
    _current = None
    _current = key, ForkServer(python, spec.preload, shared)
    return _current[1]


def _is_of_a_worker(name: str) -> bool:
    return any(fnmatch.fnmatchcase(name, each) for each in OF_A_WORKER)


def main() -> None:
    """Import, then fork on demand, until the owner closes the socket."""
    with socket.socket(fileno=int(sys.argv[1])) as control:
        with imports_without_gc():
            _preload(sys.argv[2:])
        worker = serve_forks(control, largest=LARGEST_ORDER)
    if worker is not None:
        order, descriptors = worker
        _become(pickle.loads(order), descriptors)
    _exit(0)


def _preload(modules: Sequence[str]) -> None:
    sys.modules.update(dict.fromkeys(IMPORTED_BY_TRL))  # type: ignore[arg-type]
    for module in modules:
        try:
            importlib.import_module(module)
        except Exception as error:  # noqa: BLE001 - a worker that needs it fails by itself
            sys.stderr.write(f"cannot import {module}: {error}\n")
    for module in IMPORTED_BY_TRL:
        del sys.modules[module]


def _become(order: ForkOrder, descriptors: list[int]) -> None:
    """Be the worker, as a process would be that was started for it alone."""
    connection, output, *_ = descriptors  # the others are only to stay open
    printed = os.pread(1, LARGEST_OUTPUT, 0)  # while it imported
    for stream in (1, 2):
        os.dup2(output, stream)
    os.close(output)
    with contextlib.suppress(OSError):  # a full disk: what matters then is told elsewhere
        os.write(1, printed)
    os.chdir(order.working_dir)
    for name, value in order.environment.items():
        os.environ.pop(name, None)
        if value is not None:
            os.environ[name] = value
    tempfile.tempdir = None  # found anew, in the environment
    with contextlib.suppress(OSError):
        Path("/proc/self/comm").write_text(order.name, encoding="utf-8")
    if "torch" in sys.modules:  # which has read the server's environment
        sys.modules["torch"].set_num_threads(int(os.environ["OMP_NUM_THREADS"]))
    try:
        serve_owner(connection)
    except BaseException:  # noqa: BLE001 - the end of the process, as of an interpreter
        traceback.print_exc()
        _exit(1)


def _exit(code: int) -> NoReturn:
    """End without taking apart what is shared with others, which would copy every page."""
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


if __name__ == "__main__":
    main()
