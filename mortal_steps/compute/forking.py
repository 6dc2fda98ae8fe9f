"""Workers that are forked and not started: the owner's side of `forkserver`.

A fork server exists for each combination of interpreter, modules and environment, for as long as
this process lives. The checks before a run, its actor and its rollout workers are forked from the
same one.
"""

from __future__ import annotations

import asyncio
import contextlib
import fnmatch
import functools
import os
import pickle
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Mapping, Sequence

from mortal_steps.compute.base import WorkerSpec
from mortal_steps.compute.forkserver import STATUS, ForkOrder
from mortal_steps.errors import WorkerLostError
from mortal_steps.system.gpus import has_gpu
from mortal_steps.system.processes import ending, open_handle

MOST_SERVERS = 3
"""Fork servers that are kept, at most one per role. Further ones are closed when none of their
workers lives."""
STATUS_WITHIN_S = 5.0
"""Seconds that a fork server may take to report the exit status of a worker that has ended."""
OF_A_WORKER = ("OMP_NUM_THREADS", "TMPDIR", "MORTAL_WORKER_SCRATCH")
"""Environment variables with a value per worker, which are set after the fork."""
OF_NO_IMPORT = ("PREFECT_*", "PYTEST_CURRENT_TEST")
"""Environment variables that no import of a worker reads."""
OF_THE_SERVER = {
    # Threads that a library has started do not come along in a fork.
    "OMP_NUM_THREADS": "1",
    "JE_ARROW_MALLOC_CONF": "background_thread:false",
}

Key = tuple[str, tuple[str, ...], frozenset[tuple[str, str]]]

_servers: dict[Key, ForkServer] = {}
_finding = threading.Lock()


class ForkedProcess:
    """A worker's process, for the event loop in which it was made; like `asyncio`'s `Process`."""

    def __init__(self, pid: int, handle: int, answers: socket.socket) -> None:
        self.pid = pid
        self._handle: int | None = handle
        """None once the process has ended."""
        self._answers = answers
        self._loop = asyncio.get_running_loop()
        self._code: asyncio.Future[int | None] = self._loop.create_future()
        self._loop.add_reader(handle, self._ended)

    async def wait(self) -> int | None:
        """The exit code once the process has ended, below zero for a signal; None if it is
        unknown."""
        return await asyncio.shield(self._code)

    def has_ended(self) -> bool:
        """Whether it is dead and its exit code is known."""
        return self._code.done()

    def kill(self) -> None:
        """SIGKILL; raises `ProcessLookupError` if it has ended."""
        if self._handle is None:
            raise ProcessLookupError(self.pid)
        signal.pidfd_send_signal(self._handle, signal.SIGKILL)

    def _ended(self) -> None:
        assert self._handle is not None  # it ends once
        self._loop.remove_reader(self._handle)
        os.close(self._handle)  # from here on, the number may be that of another file
        self._handle = None
        self._patience = self._loop.call_later(STATUS_WITHIN_S, self._told)
        self._loop.add_reader(self._answers, self._told)

    def _told(self) -> None:
        self._patience.cancel()
        self._loop.remove_reader(self._answers)
        status = b""
        with contextlib.suppress(OSError):  # the server, too, is gone
            status = self._answers.recv(STATUS.size)
        self._answers.close()
        self._code.set_result(STATUS.unpack(status)[0] if status else None)


class ForkServer:
    """A process that imports `modules` when it starts, and becomes a worker at each `fork`."""

    def __init__(self, python: str, modules: Sequence[str], environment: Mapping[str, str]) -> None:
        self._environment = {**environment, **OF_THE_SERVER}
        self._control, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._control.setblocking(False)
        self._workers: list[ForkedProcess] = []
        self._ordered = 0
        """Workers that somebody waits for."""
        with theirs, tempfile.TemporaryFile() as output:
            self._process = subprocess.Popen(
                [
                    python,
                    "-P",  # files of the working folder hide nothing installed
                    "-m",
                    "mortal_steps.compute.forkserver",
                    str(theirs.fileno()),
                    *modules,
                ],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                pass_fds=[theirs.fileno()],
                env=self._environment,
                start_new_session=True,
            )

    def lives(self) -> bool:
        """Whether it still accepts requests."""
        return self._process.poll() is None

    def is_needed(self) -> bool:
        """Whether somebody waits for one of its workers, or one is alive, whose exit status only it
        can report."""
        return self._ordered > 0 or any(not worker.has_ended() for worker in self._workers)

    def close(self) -> None:
        """End the server; its workers continue."""
        self._control.close()

    async def fork(
        self,
        name: str,
        *,
        working_dir: str,
        environment: Mapping[str, str],
        descriptors: Sequence[int],
    ) -> ForkedProcess:
        """A new worker, with its socket, its output and whatever else it shall hold open.

        Waits for the imports. Raises `WorkerLostError` if the server ended instead.
        """
        changed = {**dict.fromkeys(self._environment), **environment}
        order = ForkOrder(
            name=name,
            working_dir=working_dir,
            environment={k: v for k, v in changed.items() if v != self._environment.get(k)},
        )
        answers, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        answers.setblocking(False)
        self._ordered += 1
        try:
            with theirs:
                passed = [theirs.fileno(), *descriptors]
                socket.send_fds(self._control, [pickle.dumps(order)], passed)
            await _readable(answers)
            told, handles, _, _ = socket.recv_fds(answers, STATUS.size, 1)
        except BaseException as error:
            answers.close()
            if isinstance(error, OSError):
                raise self._lost(name) from error
            raise
        finally:
            self._ordered -= 1
        if not told:
            answers.close()
            raise self._lost(name)
        worker = ForkedProcess(STATUS.unpack(told)[0], handles[0], answers)
        self._workers = [one for one in (*self._workers, worker) if not one.has_ended()]
        return worker

    def _lost(self, name: str) -> WorkerLostError:
        how = ""
        with contextlib.suppress(subprocess.TimeoutExpired):
            how = f" ({ending(self._process.wait(STATUS_WITHIN_S))})"
        return WorkerLostError(
            f"{name} could not be started: the process {self._process.pid}, from which it is "
            f"forked, has ended{how}"
        )


def fork_server(spec: WorkerSpec, environment: Mapping[str, str]) -> ForkServer | None:
    """The server that a worker with this environment is forked from, started where there is none.

    None for a worker that has to be started as an interpreter of its own: its spec names no
    modules, or devices of its own, or this machine has a GPU or no handles of processes.
    Raises `OSError` for an interpreter that cannot be started.
    """
    # If an import begins to use a GPU, processes that are forked later cannot use it.
    if not spec.preload or spec.devices or has_gpu() or not _can_fork():
        return None
    python = spec.python or sys.executable
    shared = {name: value for name, value in environment.items() if _matters(name)}
    key = (python, spec.preload, frozenset(shared.items()))
    with _finding:
        server = _servers.pop(key, None)
        if server is None or not server.lives():
            server = ForkServer(python, spec.preload, shared)
        _servers[key] = server  # the last one is the one that was used last
        for old in list(_servers)[:-MOST_SERVERS]:
            if not _servers[old].is_needed():
                _servers.pop(old).close()
    return server


def _matters(name: str) -> bool:
    """Whether an environment variable may decide what an import does."""
    return not any(fnmatch.fnmatchcase(name, each) for each in (*OF_A_WORKER, *OF_NO_IMPORT))


@functools.cache
def _can_fork() -> bool:
    """Handles of processes are Linux's; elsewhere libraries do not expect to be forked, either."""
    handle = open_handle(os.getpid())
    if handle is None:
        return False
    os.close(handle)
    return True


async def _readable(connection: socket.socket) -> None:
    loop, ready = asyncio.get_running_loop(), asyncio.Event()
    loop.add_reader(connection, ready.set)
    try:
        await ready.wait()
    finally:
        loop.remove_reader(connection)
