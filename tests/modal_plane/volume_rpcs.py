"""Volumes as clients see them: named directories of committed files."""

from __future__ import annotations

import asyncio
import os
import shutil
from collections.abc import Awaitable, Callable
from pathlib import Path

from google.protobuf.empty_pb2 import Empty
from grpclib import GRPCError, Status
from modal_proto import api_pb2 as pb

from .types import Caller, MountedVolume, World, environment_name
from .volumes import Volumes, has_open_files

BLOCK = 8 * 1024 * 1024
"""Bytes of a block, in which version 2 volumes send files."""
SendEntries = Callable[[pb.VolumeListFilesResponse | pb.VolumeListFiles2Response], Awaitable[None]]


class VolumeRpcs:
    """RPCs of volumes."""

    def __init__(self, world: World, volumes: Volumes) -> None:
        self.world = world
        self.volumes = volumes
        self.blocks = world.state / "blocks"
        """Content of blocks, by sha256."""
        self.blocks.mkdir(parents=True, exist_ok=True)

    async def VolumeGetOrCreate(
        self, request: pb.VolumeGetOrCreateRequest, caller: Caller
    ) -> pb.VolumeGetOrCreateResponse:
        key = (environment_name(request.environment_name), request.deployment_name)
        volume_id = self.volumes.named.get(key) if request.deployment_name else None
        if volume_id is None:
            if request.object_creation_type == pb.OBJECT_CREATION_TYPE_UNSPECIFIED:
                raise GRPCError(
                    Status.NOT_FOUND,
                    f"Volume {request.deployment_name!r} not found in environment {key[0]!r}",
                )
            volume_id = self.world.new_id("vo")
            if request.deployment_name:
                self.volumes.named[key] = volume_id
            self.volumes.versions[volume_id] = request.version or pb.VOLUME_FS_VERSION_V1
            self.volumes.committed(volume_id).mkdir(parents=True, exist_ok=True)
        version = self.volumes.versions[volume_id]
        return pb.VolumeGetOrCreateResponse(
            volume_id=volume_id,
            version=version,
            metadata=pb.VolumeMetadata(version=version, name=request.deployment_name),
        )

    async def VolumeHeartbeat(self, request: pb.VolumeHeartbeatRequest, caller: Caller) -> Empty:
        return Empty()

    async def VolumeList(
        self, request: pb.VolumeListRequest, caller: Caller
    ) -> pb.VolumeListResponse:
        environment = environment_name(request.environment_name)
        return pb.VolumeListResponse(
            items=[
                pb.VolumeListItem(
                    label=name,
                    volume_id=volume_id,
                    metadata=pb.VolumeMetadata(name=name, version=self.volumes.versions[volume_id]),
                )
                for (where, name), volume_id in self.volumes.named.items()
                if where == environment
            ],
            environment_name=environment,
        )

    async def VolumeDelete(self, request: pb.VolumeDeleteRequest, caller: Caller) -> Empty:
        shutil.rmtree(self.volumes.committed(request.volume_id))
        del self.volumes.versions[request.volume_id]
        named = self.volumes.named
        self.volumes.named = {k: v for k, v in named.items() if v != request.volume_id}
        return Empty()

    # ---- of containers

    def _mounted(self, volume_id: str, caller: Caller) -> MountedVolume:
        if caller.container is None or volume_id not in caller.container.volumes:
            raise GRPCError(
                Status.FAILED_PRECONDITION, f"volume {volume_id} is not mounted by {caller.name}"
            )
        return caller.container.volumes[volume_id]

    async def VolumeCommit(
        self, request: pb.VolumeCommitRequest, caller: Caller
    ) -> pb.VolumeCommitResponse:
        await asyncio.sleep(self.world.options.commit_delay_s)
        changed = self.volumes.commit(request.volume_id, self._mounted(request.volume_id, caller))
        self.world.events.add(
            "volume_committed", volume=request.volume_id, changed=changed, by=caller.name
        )
        return pb.VolumeCommitResponse(skip_reload=True)

    async def VolumeReload(self, request: pb.VolumeReloadRequest, caller: Caller) -> Empty:
        mounted = self._mounted(request.volume_id, caller)
        process = caller.container.process if caller.container else None
        if process is not None and has_open_files(process.pid, mounted.path):
            raise GRPCError(
                Status.FAILED_PRECONDITION, "there are open files preventing the operation"
            )
        self.volumes.reload(request.volume_id, mounted)
        await asyncio.sleep(self.world.options.reload_delay_s)
        self.world.events.add("volume_reloaded", volume=request.volume_id, by=caller.name)
        return Empty()

    # ---- of clients

    def _path(self, volume_id: str, path: str) -> Path:
        return self.volumes.committed(volume_id) / path.strip("/")

    def _entries(self, volume_id: str, path: str, recursive: bool) -> list[pb.FileEntry]:
        base = self._path(volume_id, path)
        if not base.exists():
            raise GRPCError(Status.NOT_FOUND, f"No such file or directory: {path!r}")
        paths = (
            sorted(base.rglob("*") if recursive else base.iterdir()) if base.is_dir() else [base]
        )
        root = self.volumes.committed(volume_id)
        return [
            pb.FileEntry(
                path=str(one.relative_to(root)),
                type=pb.FileEntry.DIRECTORY if one.is_dir() else pb.FileEntry.FILE,
                mtime=int(one.stat().st_mtime),
                size=0 if one.is_dir() else one.stat().st_size,
            )
            for one in paths
        ]

    async def stream_VolumeListFiles(
        self, request: pb.VolumeListFilesRequest, caller: Caller, send: SendEntries
    ) -> None:
        entries = self._entries(request.volume_id, request.path, request.recursive)
        await send(pb.VolumeListFilesResponse(entries=entries))

    async def stream_VolumeListFiles2(
        self, request: pb.VolumeListFiles2Request, caller: Caller, send: SendEntries
    ) -> None:
        entries = self._entries(request.volume_id, request.path, request.recursive)
        await send(pb.VolumeListFiles2Response(entries=entries))

    async def VolumeGetFile2(
        self, request: pb.VolumeGetFile2Request, caller: Caller
    ) -> pb.VolumeGetFile2Response:
        """Addresses of the file's blocks, which files.py answers."""
        path = self._path(request.volume_id, request.path)
        if not path.is_file():
            raise GRPCError(Status.NOT_FOUND, f"No such file: {request.path!r}")
        size = path.stat().st_size
        end = min(request.start + (request.len or size), size)
        urls, position = [], request.start
        while position < end:
            length = min(BLOCK - position % BLOCK, end - position)
            name = f"{request.volume_id}/{position}/{length}/{request.path.strip('/')}"
            urls.append(f"{caller.files_url}/volume/{name}")
            position += length
        return pb.VolumeGetFile2Response(
            get_urls=urls, size=size, start=request.start, len=max(0, end - request.start)
        )

    async def VolumePutFiles(self, request: pb.VolumePutFilesRequest, caller: Caller) -> Empty:
        """Version 1: the content came as files of a mount."""
        self.volumes.check_space(request.volume_id)
        for file in request.files:
            target = self._new_file(
                request.volume_id, file.filename, request.disallow_overwrite_existing_files
            )
            shutil.copyfile(self.world.state / "files" / file.sha256_hex, target)
        return Empty()

    async def VolumePutFiles2(
        self, request: pb.VolumePutFiles2Request, caller: Caller
    ) -> pb.VolumePutFiles2Response:
        """Version 2: asked again once the blocks that were missing are there."""
        self.volumes.check_space(request.volume_id)
        missing = [
            pb.VolumePutFiles2Response.MissingBlock(
                file_index=i, block_index=j, put_url=f"{caller.files_url}/block"
            )
            for i, file in enumerate(request.files)
            for j, block in enumerate(file.blocks)
            if not (self.blocks / block.contents_sha256.hex()).exists()
        ]
        if not missing:
            for file in request.files:
                target = self._new_file(
                    request.volume_id, file.path, request.disallow_overwrite_existing_files
                )
                beside = target.with_name(target.name + ".plane-tmp")
                with beside.open("wb") as out:
                    for block in file.blocks:
                        out.write((self.blocks / block.contents_sha256.hex()).read_bytes())
                os.truncate(beside, file.size)
                beside.replace(target)
        return pb.VolumePutFiles2Response(missing_blocks=missing)

    def _new_file(self, volume_id: str, path: str, keep_existing: bool) -> Path:
        target = self._path(volume_id, path)
        if keep_existing and target.exists():
            raise GRPCError(Status.ALREADY_EXISTS, f"{path}: already exists")
        target.parent.mkdir(parents=True, exist_ok=True)
        return target

    async def VolumeRemoveFile(self, request: pb.VolumeRemoveFileRequest, caller: Caller) -> Empty:
        return self._remove(request.volume_id, request.path, request.recursive)

    async def VolumeRemoveFile2(
        self, request: pb.VolumeRemoveFile2Request, caller: Caller
    ) -> Empty:
        return self._remove(request.volume_id, request.path, request.recursive)

    def _remove(self, volume_id: str, path: str, recursive: bool) -> Empty:
        target = self._path(volume_id, path)
        if not target.exists():
            raise GRPCError(Status.NOT_FOUND, f"No such file or directory: {path!r}")
        if target.is_dir() and not recursive:
            raise GRPCError(Status.INVALID_ARGUMENT, f"{path!r} is a directory")
        if target.is_dir():
            shutil.rmtree(target)
        else:
            target.unlink()
        return Empty()
