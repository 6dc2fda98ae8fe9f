"""Sandboxes: processes of a container of their own, driven from outside.

Version 2 of Modal's API, which the client uses by default: it creates and awaits a sandbox by RPCs
of the control plane, and starts commands in it and reads their output by RPCs of a router.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import time
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from grpclib import GRPCError, Status
from modal_proto import api_pb2 as pb

from .account import new_token
from .isolation import Bind, Launch, start_process, wait_for_root
from .launcher import Launcher, bind_files
from .processes import DIRECTORY_VARIABLE, kill_everything
from .types import Caller, MountedVolume, Result, Signal, World

CHUNK = 1 << 20
DEFAULT_TIMEOUT_S = 300
Send = Callable[[Any], Awaitable[None]]


@dataclass(kw_only=True, slots=True)
class Command:
    """A process whose output can be read from any offset, again and again."""

    process: Process
    output: dict[int, bytearray] = field(default_factory=lambda: {1: bytearray(), 2: bytearray()})
    closed: set[int] = field(default_factory=set)
    signal: Signal = field(default_factory=Signal)
    received: int = 0
    """Bytes of standard input so far."""
    done: asyncio.Task[None] | None = None
    """Ends with the process's output."""

    async def collect(self) -> None:
        """Read the output until its end."""
        assert self.process.stdout is not None
        assert self.process.stderr is not None
        await asyncio.gather(
            self._collect(1, self.process.stdout), self._collect(2, self.process.stderr)
        )

    async def _collect(self, descriptor: int, stream: asyncio.StreamReader) -> None:
        while data := await stream.read(1 << 16):
            self.output[descriptor] += data
            self.signal.notify()
        self.closed.add(descriptor)
        self.signal.notify()

    async def read(self, descriptor: int, offset: int) -> AsyncIterator[tuple[int, bytes]]:
        """(offset, bytes) from `offset` on, until the output ends."""
        while True:
            while data := bytes(self.output[descriptor][offset : offset + CHUNK]):
                yield offset, data
                offset += len(data)
            if descriptor in self.closed:
                return
            await self.signal.wait(time.time() + 60)

    async def write(self, offset: int, data: bytes, eof: bool) -> None:
        """Standard input; what came before, as a client that retries sends it, is skipped."""
        assert self.process.stdin is not None
        new = data[max(0, self.received - offset) :]
        self.process.stdin.write(new)
        await self.process.stdin.drain()
        self.received += len(new)
        if eof:
            self.process.stdin.close()

    async def wait(self) -> int:
        """The exit code, once all output is read."""
        assert self.done is not None
        await self.done
        return await self.process.wait()

    def kill(self) -> None:
        """SIGKILL to the process and its group."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)


@dataclass(kw_only=True, slots=True)
class Sandbox:
    """One sandbox."""

    id: str
    task_id: str
    app_id: str
    definition: pb.Sandbox
    directory: Path
    environment: dict[str, str] = field(default_factory=dict)
    binds: list[Bind] = field(default_factory=list)
    workdir: str = "/"
    volumes: dict[str, MountedVolume] = field(default_factory=dict)
    first: Command | None = None
    """The process whose namespaces the others share."""
    main: Command | None = None
    """What it was created with, if anything; the sandbox ends with it."""
    commands: dict[str, Command] = field(default_factory=dict)
    result: pb.GenericResult | None = None
    signal: Signal = field(default_factory=Signal)


class Sandboxes:
    """RPCs of the control plane about sandboxes."""

    def __init__(self, world: World, launcher: Launcher) -> None:
        self.world = world
        self.launcher = launcher
        self.sandboxes: dict[str, Sandbox] = {}
        """By their own ids and by those of their tasks."""

    def get(self, sandbox_id: str) -> Sandbox:
        """A sandbox by its id or its task's."""
        if sandbox_id not in self.sandboxes:
            raise GRPCError(Status.NOT_FOUND, f"Sandbox {sandbox_id!r} not found")
        return self.sandboxes[sandbox_id]

    def variables(self, sources: Iterable[Any]) -> dict[str, str]:
        """The variables of secrets that a request names or holds."""
        variables: dict[str, str] = {}
        for one in sources:
            if one.secret_id:
                variables |= self.launcher.secrets.environment([one.secret_id])
            else:
                variables |= dict(one.env.contents)
        return variables

    async def SandboxCreateV2(
        self, request: pb.SandboxCreateV2Request, caller: Caller
    ) -> pb.SandboxCreateV2Response:
        sandbox_id = self.world.new_id("sb")
        sandbox = Sandbox(
            id=sandbox_id,
            task_id=f"ta-{sandbox_id}",
            app_id=request.app_id,
            definition=request.definition,
            directory=self.world.state / "tasks" / sandbox_id,
        )
        self.sandboxes[sandbox.id] = self.sandboxes[sandbox.task_id] = sandbox
        self._furnish(sandbox, self.variables(request.secret_sources))
        self.world.events.add("sandbox_started", sandbox=sandbox.id)
        arguments = list(request.definition.entrypoint_args)
        sandbox.first = await self.start(sandbox, arguments or ["sleep", "infinity"], {}, "")
        if arguments:
            sandbox.main = sandbox.first
            self.world.start(self._await_main(sandbox, sandbox.main))
        await wait_for_root(sandbox.first.process)
        asyncio.get_running_loop().call_later(
            request.definition.timeout_secs or DEFAULT_TIMEOUT_S,
            self.end,
            sandbox,
            Result(status=Result.GENERIC_STATUS_TIMEOUT, exitcode=124),
        )
        if request.definition.idle_timeout_secs and sandbox.main is None:
            self.world.start(self._await_idleness(sandbox))
        return pb.SandboxCreateV2Response(
            sandbox_id=sandbox.id,
            task_id=sandbox.task_id,
            metadata=pb.SandboxHandleMetadata(app_id=request.app_id),
            command_router_access=pb.CommandRouterAccess(url=caller.server_url, jwt=new_token()),
        )

    def _furnish(self, sandbox: Sandbox, variables: dict[str, str]) -> None:
        """Lay out its files, volumes and variables."""
        definition = sandbox.definition
        files = sandbox.directory / "files"
        self.launcher.images.lay_out(definition.image_id, definition.mount_ids, files)
        settings = self.launcher.images.settings(definition.image_id)
        stand_ins = self.world.options.stand_ins
        python = self.launcher.images.interpreter(definition.image_id, stand_ins)
        sandbox.binds = bind_files(files) + self.launcher.volumes.mount(
            definition.volume_mounts, sandbox.directory / "volumes", sandbox.volumes
        )
        sandbox.workdir = definition.workdir or settings.workdir
        sandbox.environment = {
            **self.launcher.common_environment(),
            **settings.environment,
            **self.launcher.secrets.environment(definition.secret_ids),
            **variables,
            **dict(definition.environment_variables.contents),
            "PATH": f"{python.parent}:{os.environ['PATH']}",
            "MODAL_SANDBOX_ID": sandbox.id,
            "MODAL_TASK_ID": sandbox.task_id,
            "MODAL_IS_REMOTE": "1",
            DIRECTORY_VARIABLE: str(sandbox.directory),
        }

    async def start(
        self, sandbox: Sandbox, arguments: list[str], variables: dict[str, str], workdir: str
    ) -> Command:
        """Start a process in the sandbox."""
        definition = sandbox.definition
        access = definition.network_access.network_access_type
        process = await start_process(
            Launch(
                directory=sandbox.directory,
                arguments=arguments,
                environment={**sandbox.environment, **variables},
                workdir=workdir or sandbox.workdir,
                binds=sandbox.binds,
                no_network=access == pb.NetworkAccess.BLOCKED or definition.block_network,
                memory_mb=definition.resources.memory_mb_max,
                hide=[str(path) for path in self.world.options.hide],
                join=sandbox.first.process.pid if sandbox.first else 0,
            ),
            self.world.options.isolation,
            stdin=PIPE,
            stdout=PIPE,
            stderr=PIPE,
        )
        command = Command(process=process)
        command.done = asyncio.get_running_loop().create_task(command.collect())
        return command

    async def _await_main(self, sandbox: Sandbox, main: Command) -> None:
        code = await main.wait()
        status = Result.GENERIC_STATUS_FAILURE if code else Result.GENERIC_STATUS_SUCCESS
        self.end(sandbox, Result(status=status, exitcode=code if code >= 0 else 128 - code))

    async def _await_idleness(self, sandbox: Sandbox) -> None:
        """End the sandbox once no command has run in it for as long as it may be idle."""
        busy = time.time()
        while sandbox.result is None:
            if any(one.process.returncode is None for one in sandbox.commands.values()):
                busy = time.time()
            if time.time() - busy >= sandbox.definition.idle_timeout_secs:
                self.end(sandbox, Result(status=Result.GENERIC_STATUS_IDLE_TIMEOUT, exitcode=124))
            await asyncio.sleep(0.2)

    def end(self, sandbox: Sandbox, result: pb.GenericResult) -> None:
        """End the sandbox with this result, unless it has ended."""
        if sandbox.result is not None:
            return
        sandbox.result = result
        kill_everything(sandbox.first.process if sandbox.first else None, sandbox.directory)
        for volume_id, mounted in sandbox.volumes.items():
            self.launcher.volumes.commit(volume_id, mounted)
        self.world.events.add("sandbox_ended", sandbox=sandbox.id, code=result.exitcode)
        sandbox.signal.notify()

    def end_all(self) -> None:
        """End every sandbox."""
        for sandbox in self.sandboxes.values():
            self.end(sandbox, Result(status=Result.GENERIC_STATUS_TERMINATED, exitcode=137))

    async def SandboxGetCommandRouterAccess(
        self, request: pb.SandboxGetCommandRouterAccessRequest, caller: Caller
    ) -> pb.SandboxGetCommandRouterAccessResponse:
        return pb.SandboxGetCommandRouterAccessResponse(url=caller.server_url, jwt=new_token())

    async def SandboxWaitV2(
        self, request: pb.SandboxWaitRequest, caller: Caller
    ) -> pb.SandboxWaitResponse:
        sandbox = self.get(request.sandbox_id)
        until = time.time() + request.timeout
        while sandbox.result is None and time.time() < until:
            await sandbox.signal.wait(until)
        metadata = pb.SandboxHandleMetadata(app_id=sandbox.app_id, result=sandbox.result)
        return pb.SandboxWaitResponse(result=sandbox.result, metadata=metadata)

    async def SandboxTerminateV2(
        self, request: pb.SandboxTerminateRequest, caller: Caller
    ) -> pb.SandboxTerminateResponse:
        terminated = Result(status=Result.GENERIC_STATUS_TERMINATED, exitcode=137)
        self.end(self.get(request.sandbox_id), terminated)
        return pb.SandboxTerminateResponse()

    async def SandboxGetTaskIdV2(
        self, request: pb.SandboxGetTaskIdRequest, caller: Caller
    ) -> pb.SandboxGetTaskIdResponse:
        sandbox = self.get(request.sandbox_id)
        if sandbox.result is not None:
            return pb.SandboxGetTaskIdResponse(task_result=sandbox.result)
        return pb.SandboxGetTaskIdResponse(task_id=sandbox.task_id)
