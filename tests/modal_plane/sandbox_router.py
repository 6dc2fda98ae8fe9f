"""The router of sandboxes: commands in them, their input and output."""

from __future__ import annotations

import asyncio

from grpclib import GRPCError, Status
from modal_proto import task_command_router_pb2 as router

from .sandboxes import Command, Sandboxes, Send
from .types import Caller


class SandboxRouter:
    """RPCs of the router."""

    def __init__(self, sandboxes: Sandboxes) -> None:
        self.sandboxes = sandboxes

    def identify(self, metadata: dict[str, str], port: int) -> Caller:
        """Whoever has a token of the router's."""
        if not metadata.get("authorization", "").startswith("Bearer "):
            raise GRPCError(Status.UNAUTHENTICATED, "no token for the router")
        return Caller(name="router", container=None, server_url="", files_url="")

    def _command(self, task_id: str, exec_id: str) -> Command:
        commands = self.sandboxes.get(task_id).commands
        if exec_id not in commands:
            raise GRPCError(Status.NOT_FOUND, f"no command {exec_id!r} in {task_id}")
        return commands[exec_id]

    def _main(self, task_id: str) -> Command:
        main = self.sandboxes.get(task_id).main
        if main is None:
            raise GRPCError(Status.FAILED_PRECONDITION, f"{task_id} was created without a command")
        return main

    async def TaskExecStart(
        self, request: router.TaskExecStartRequest, caller: Caller
    ) -> router.TaskExecStartResponse:
        sandbox = self.sandboxes.get(request.task_id)
        if sandbox.result is not None:
            raise GRPCError(Status.FAILED_PRECONDITION, f"{sandbox.id} has already finished")
        variables = dict(request.env) | self.sandboxes.variables(request.secret_sources)
        variables |= self.sandboxes.launcher.secrets.environment(request.secret_ids)
        command = await self.sandboxes.start(
            sandbox, list(request.command_args), variables, request.workdir
        )
        sandbox.commands[request.exec_id] = command
        if request.timeout_secs:
            loop = asyncio.get_running_loop()
            loop.call_later(request.timeout_secs, command.kill)
        return router.TaskExecStartResponse()

    async def TaskExecWait(
        self, request: router.TaskExecWaitRequest, caller: Caller
    ) -> router.TaskExecWaitResponse:
        code = await self._command(request.task_id, request.exec_id).wait()
        if code < 0:
            return router.TaskExecWaitResponse(signal=-code)
        return router.TaskExecWaitResponse(code=code)

    async def TaskExecPoll(
        self, request: router.TaskExecPollRequest, caller: Caller
    ) -> router.TaskExecPollResponse:
        code = self._command(request.task_id, request.exec_id).process.returncode
        if code is None:
            return router.TaskExecPollResponse()
        if code < 0:
            return router.TaskExecPollResponse(signal=-code)
        return router.TaskExecPollResponse(code=code)

    async def stream_TaskExecStdioRead(
        self, request: router.TaskExecStdioReadRequest, caller: Caller, send: Send
    ) -> None:
        is_out = request.file_descriptor == router.TASK_EXEC_STDIO_FILE_DESCRIPTOR_STDOUT
        command = self._command(request.task_id, request.exec_id)
        async for _, data in command.read(1 if is_out else 2, request.offset):
            await send(router.TaskExecStdioReadResponse(data=data))

    async def TaskExecStdinWrite(
        self, request: router.TaskExecStdinWriteRequest, caller: Caller
    ) -> router.TaskExecStdinWriteResponse:
        command = self._command(request.task_id, request.exec_id)
        await command.write(request.offset, request.data, request.eof)
        return router.TaskExecStdinWriteResponse()

    async def stream_SandboxStdioReadV2(
        self, request: router.SandboxStdioReadV2Request, caller: Caller, send: Send
    ) -> None:
        is_out = request.file_descriptor == router.SANDBOX_STDIO_FILE_DESCRIPTOR_STDOUT
        main = self._main(request.task_id)
        async for offset, data in main.read(1 if is_out else 2, request.offset):
            await send(router.SandboxStdioReadV2Response(data=data, starting_offset=offset))

    async def SandboxStdinWriteV2(
        self, request: router.SandboxStdinWriteV2Request, caller: Caller
    ) -> router.SandboxStdinWriteV2Response:
        await self._main(request.task_id).write(request.offset, request.data, request.eof)
        return router.SandboxStdinWriteV2Response()

    async def TaskReloadVolumes(
        self, request: router.TaskReloadVolumesRequest, caller: Caller
    ) -> router.TaskReloadVolumesResponse:
        for volume_id, mounted in self.sandboxes.get(request.task_id).volumes.items():
            self.sandboxes.launcher.volumes.reload(volume_id, mounted)
        return router.TaskReloadVolumesResponse()
