"""A container on this machine, as its owner sees it: one OS process with one worker."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import itertools
import os
import socket
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO, Any

from mortal_steps.compute.base import WorkerSpec
from mortal_steps.compute.forkserver import (
    ForkedProcess,
    ForkServer,
    computes_on_cpu,
    fork_server,
)
from mortal_steps.errors import MortalError, WorkerLostError
from mortal_steps.store.files import writing
from mortal_steps.system.child import Child
from mortal_steps.system.frames import Answer, Construct, Frames, Request, encode_frame
from mortal_steps.system.processes import ending
from mortal_steps.system.rounding import decides_rounding
from mortal_steps.system.scratch import Scratch

CLOSE_GRACE_S = 2.0
"""Seconds that a container may take to end by itself before it is killed."""
LAST_LINES = 8
"""Of its log, in the error that says that a worker has ended. Before a process ends, its libraries
may still print some."""
LOG_END_BYTES = 8192
"""Bytes at the end of a lost container's log that are read for its error message."""
LONGEST_LOG = 64 * 2**20
"""Bytes. A log that is longer after a call is cut to its end."""
REMEDIES = {
    errno.EMFILE: "; raise the limit of open files, `ulimit -n 4096`",
    errno.EAGAIN: "; raise the limit of processes, `ulimit -u`, or that of the container",
}
ENVIRONMENT = {
    # Threads that spin while they wait take the cores from every other process of the machine.
    "OMP_WAIT_POLICY": "PASSIVE",
    # Memory that is given back after each tensor is cleared page by page for the next one. What is
    # larger than 32 MiB, the most that glibc takes here, still goes back at once.
    "MALLOC_MMAP_THRESHOLD_": str(32 * 2**20),
    "MALLOC_TRIM_THRESHOLD_": str(2**30),
    # TRL tells its authors of each trainer that it builds: the kind of trainer, model and GPU.
    "HF_HUB_DISABLE_TELEMETRY": "1",
}
"""Environment variables of every container, unless they are set in this process."""
KEEPING_MEMORY = {
    # On a CPU, tensors of a training step are larger than that, and each new one was cleared.
    "MALLOC_MMAP_MAX_": "0",
    "MALLOC_TRIM_THRESHOLD_": str(2**40),
}
"""Those of a container that trains or samples with torch on the CPU: it keeps the memory of its
largest moment for the next one like it."""


class StartedProcess:
    """A worker's process that is an interpreter of its own."""

    def __init__(self, child: Child) -> None:
        self._child = child

    async def wait(self) -> int | None:
        """Return the exit code once the process has ended, below zero for a signal."""
        return await asyncio.to_thread(self._child.wait)

    def kill(self) -> None:
        self._child.kill()


class LocalContainer:
    """One worker process, started at its first call and again once lost. Without `log_dir`, it
    writes to this process's output or, with `log_in_scratch`, among its temporary files."""

    def __init__(
        self,
        name: str,
        spec: WorkerSpec,
        index: int,
        working_dir: Path,
        log_dir: Path | None,
        inherited: Sequence[int] = (),
        *,
        log_in_scratch: bool = False,
    ) -> None:
        self.name = name
        self.process: StartedProcess | ForkedProcess | None = None
        self.pid: int | None = None
        """Of the worker; None before it is ready."""
        self.on_lost: Callable[[], None] | None = None
        self._spec = spec
        self._index = index
        self._working_dir = working_dir
        self._inherited = inherited
        self._log_path = log_dir / f"{name}.log" if log_dir is not None else None
        self._log_in_scratch = log_in_scratch
        self._starting = asyncio.Lock()
        self._numbers = itertools.count(1)
        self._pending: dict[int, asyncio.Future[Any]] = {}
        self._socket: asyncio.Transport | None = None
        self._ending: asyncio.Task[None] | None = None

    async def call(self, method: str, payload: Mapping[str, Any], label: str) -> Any:
        """Return the result of the method; `label` names the call in the log. Raises what
        `Compute.call` does, and `StoreError` if the log cannot be written."""
        async with self._starting:
            if self.process is None:
                await self._start()
        number = next(self._numbers)
        request = Request(number=number, method=method, payload=payload, label=label)
        return await self._ask(number, request)

    async def close(self, grace_s: float = CLOSE_GRACE_S) -> None:
        """Close the socket, wait a moment, then kill."""
        process, self.process = self.process, None
        if process is None:
            return
        if self._socket is not None:
            self._socket.close()
        try:
            await asyncio.wait_for(process.wait(), grace_s)
        except TimeoutError:
            process.kill()
            await process.wait()
        if self._ending is not None:
            await self._ending

    def command(self, connection: int) -> list[str]:
        """Return the command of an interpreter of its own, which inherits that file descriptor."""
        python = self._spec.python or sys.executable
        # -P: files of the working folder hide nothing installed
        return [python, "-P", "-m", "mortal_steps.compute.container", str(connection)]

    async def _start(self) -> None:
        own, devices = {}, self._spec.devices
        if devices:
            own["CUDA_VISIBLE_DEVICES"] = devices[self._index % len(devices)]
        environment = worker_environment(self._spec, own)
        with self._explained():
            server = fork_server(self._spec, environment)
        scratch = Scratch(server.scratch.path if server else None)
        if self._log_in_scratch:
            self._log_path = scratch.path / f"{self.name}.log"
        try:
            ours, theirs = socket.socketpair()
            with self._explained(), self._log() as log, theirs:
                process = self._launch(
                    server,
                    {**environment, **scratch.environment()},
                    [theirs.fileno(), log.fileno() if log else 2],
                    scratch,
                )
        except BaseException:
            scratch.remove()
            raise
        loop = asyncio.get_running_loop()

        def ended() -> None:
            self._ending = loop.create_task(self._end(process, scratch))

        self._socket, _ = await loop.create_connection(
            lambda: Frames(self._answered, ended), sock=ours
        )
        self.process, self.pid = process, None
        self.pid = await self._ask(
            0, Construct(factory=self._spec.factory, kwargs=self._spec.kwargs)
        )

    def _launch(
        self,
        server: ForkServer | None,
        environment: Mapping[str, str],
        own: Sequence[int],
        scratch: Scratch,
    ) -> StartedProcess | ForkedProcess:
        """Start the process with its connection and its output (`own`)."""
        kept = [scratch.fileno(), *self._inherited]
        if server is not None:
            return server.fork(
                self.name,
                working_dir=str(self._working_dir),
                environment=environment,
                descriptors=[*own, *kept],
            )
        connection, output = own
        child = Child(
            self.command(connection),
            output=output,
            pass_fds=[connection, *kept],
            cwd=self._working_dir,
            env=environment,
            scratch=scratch.path,
        )
        return StartedProcess(child)

    @contextlib.contextmanager
    def _explained(self) -> Iterator[None]:
        """Raise `MortalError` for what keeps a process from being started."""
        try:
            yield
        except OSError as error:
            python = self._spec.python or sys.executable
            remedy = REMEDIES.get(error.errno or 0, "")
            raise MortalError(
                f"cannot start {self.name} with {python}: {error.strerror or error}{remedy}"
            ) from error

    def _log(self) -> contextlib.AbstractContextManager[IO[bytes] | None]:
        if self._log_path is None:
            return contextlib.nullcontext()
        with writing(self._log_path):
            self._log_path.parent.mkdir(parents=True, exist_ok=True)
            return self._log_path.open("ab")

    async def _ask(self, number: int, message: object) -> Any:
        if self._socket is None or self.process is None:
            raise WorkerLostError(f"{self.name} is not running")
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._pending[number] = future
        self._socket.write(encode_frame(message))
        try:
            return await future
        finally:
            self._pending.pop(number, None)
            self._shorten_log()

    def _shorten_log(self) -> None:
        """Cut the log after a call; it can only be longer by what the worker prints in between."""
        if self._log_path is None:
            return
        with contextlib.suppress(FileNotFoundError):
            if self._log_path.stat().st_size > LONGEST_LOG:
                end = _end_of(self._log_path)
                os.truncate(self._log_path, 0)  # the worker appends, so it goes on there
                with self._log_path.open("ab") as log:
                    log.write(b"(what was here was too long)\n" + end)

    def _answered(self, answer: Answer) -> None:
        future = self._pending.get(answer.number)
        if future is None or future.done():
            return  # its caller was cancelled
        if answer.error is not None:
            future.set_exception(answer.error)
        else:
            future.set_result(answer.value)

    async def _end(self, process: StartedProcess | ForkedProcess, scratch: Scratch) -> None:
        """Tell every caller that the container has ended, and remove its temporary files."""
        code = await process.wait()
        pid = self.pid
        if self.process is process:
            self.process = None
            if self.on_lost is not None:
                self.on_lost()
        for future in self._pending.values():
            if not future.done():
                future.set_exception(WorkerLostError(self._exit_reason(pid, code)))
        scratch.remove()

    def _exit_reason(self, pid: int | None, code: int | None) -> str:
        how = ending(code) if code is not None else "its exit code is not known"
        ended = f"{self.name}{f' (process {pid})' if pid else ''} ended: {how}"
        if self._log_path is None:
            return ended
        try:
            lines = _end_of(self._log_path).decode(errors="replace").splitlines()
        except OSError as error:  # the callers have to be told all the same
            return f"{ended}; log {self._log_path} cannot be read: {error.strerror}"
        tail = "".join(f"\n    {line}" for line in lines[-LAST_LINES:])
        return f"{ended}; log {self._log_path}:{tail}"


def _end_of(log: Path) -> bytes:
    with log.open("rb") as file:
        file.seek(max(0, file.seek(0, os.SEEK_END) - LOG_END_BYTES))
        return file.read()


def worker_environment(spec: WorkerSpec, own: Mapping[str, str]) -> dict[str, str]:
    """Return a worker's environment variables; `own` are those that no other worker has."""
    shared = {
        **ENVIRONMENT,
        **(KEEPING_MEMORY if computes_on_cpu(spec) else {}),
        **spec.defaults,
        **os.environ,
        **spec.threading(),
        "PYTHONUNBUFFERED": "1",
    }
    if spec.rounding is not None:
        others = {name: value for name, value in shared.items() if not decides_rounding(name)}
        shared = {**others, **spec.rounding}
    return {**shared, **own, **spec.env}
