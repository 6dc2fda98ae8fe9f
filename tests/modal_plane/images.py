"""Images and mounts: which files and variables a container sees, and which interpreter runs it.

Nothing is built: an image is the list of lines that its Dockerfile would have. The plane follows
`ENV`, `WORKDIR` and the copying of local files, and lets an interpreter of this machine stand in
for what the other lines would install.
"""

from __future__ import annotations

import shlex
import shutil
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from modal_proto import api_pb2 as pb

from .handles import describe_mount
from .options import StandIn
from .types import Caller, Result, World

BUILDER_VERSION = "2025.06"


@dataclass(frozen=True, kw_only=True, slots=True)
class ImageSettings:
    """What the plane follows of an image's lines."""

    environment: dict[str, str]
    workdir: str
    copies: list[tuple[str, str]]
    """(mount id, directory that its files are copied to)"""


class Images:
    """RPCs of images, mounts and the files in them."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.files = world.state / "files"
        """Content of mounted files, by sha256."""
        self.files.mkdir(parents=True, exist_ok=True)
        self.images: dict[str, pb.Image] = {}
        self.mounts: dict[str, list[pb.MountFile]] = {}
        self._ids: dict[bytes, str] = {}
        self._named_mounts: dict[str, str] = {}

    async def MountBatchedCheckExistence(
        self, request: pb.MountBatchedCheckExistenceRequest, caller: Caller
    ) -> pb.MountBatchedCheckExistenceResponse:
        missing = [h for h in request.sha256_hex_hashes if not (self.files / h).exists()]
        return pb.MountBatchedCheckExistenceResponse(missing_sha256_hex_hashes=missing)

    async def MountPutFile(
        self, request: pb.MountPutFileRequest, caller: Caller
    ) -> pb.MountPutFileResponse:
        path = self.files / request.sha256_hex
        source = request.WhichOneof("data_oneof")
        if source == "data_blob_id":
            shutil.copyfile(self.world.state / "blobs" / request.data_blob_id, path)
        elif source == "data":
            path.write_bytes(request.data)
        return pb.MountPutFileResponse(exists=path.exists())

    async def MountGetOrCreate(
        self, request: pb.MountGetOrCreateRequest, caller: Caller
    ) -> pb.MountGetOrCreateResponse:
        """A named mount, such as the one of the client's own package, may be empty here."""
        mount_id = self._named_mounts.get(request.deployment_name)
        if mount_id is None:
            mount_id = self.world.new_id("mo")
            self.mounts[mount_id] = list(request.files)
            if request.deployment_name:
                self._named_mounts[request.deployment_name] = mount_id
        return pb.MountGetOrCreateResponse(
            mount_id=mount_id, handle_metadata=describe_mount(mount_id)
        )

    async def ImageGetOrCreate(
        self, request: pb.ImageGetOrCreateRequest, caller: Caller
    ) -> pb.ImageGetOrCreateResponse:
        key = request.image.SerializeToString(deterministic=True)
        if key not in self._ids:
            self._ids[key] = self.world.new_id("im")
            self.images[self._ids[key]] = request.image
        return pb.ImageGetOrCreateResponse(
            image_id=self._ids[key],
            result=Result(status=Result.GENERIC_STATUS_SUCCESS),
            metadata=pb.ImageMetadata(
                image_builder_version=request.builder_version or BUILDER_VERSION,
                python_version_info=sys.version,
            ),
        )

    async def ImageFromId(
        self, request: pb.ImageFromIdRequest, caller: Caller
    ) -> pb.ImageFromIdResponse:
        return pb.ImageFromIdResponse(image_id=request.image_id)

    def chain(self, image_id: str) -> list[pb.Image]:
        """The image and those it is built from, the first one first."""
        chain: list[pb.Image] = []
        while image_id in self.images:
            image = self.images[image_id]
            chain.insert(0, image)
            image_id = image.base_images[0].image_id if image.base_images else ""
        return chain

    def interpreter(self, image_id: str, stand_ins: Iterable[StandIn]) -> Path:
        """The interpreter that stands in for the image."""
        chain = self.chain(image_id)
        lines = [line for image in chain for line in image.dockerfile_commands]
        lines += [
            line
            for image in chain
            for file in image.context_files  # such as requirements
            for line in file.data.decode(errors="replace").splitlines()
        ]
        for one in stand_ins:
            if any(one.match in line for line in ["", *lines]):
                return one.python
        raise OSError(f"no --python stands in for image {image_id}: {lines}")

    def settings(self, image_id: str) -> ImageSettings:
        """Variables, working directory and copied files of an image."""
        environment: dict[str, str] = {}
        workdir = "/root"
        copies = []
        for image in self.chain(image_id):
            for line in image.dockerfile_commands:
                instruction, _, rest = line.strip().partition(" ")
                if instruction == "ENV":
                    for assignment in shlex.split(rest):
                        name, _, value = assignment.partition("=")
                        environment[name] = value
                elif instruction == "WORKDIR":
                    workdir = shlex.split(rest)[0]
                elif line.startswith("COPY . ") and image.context_mount_id:
                    copies.append((image.context_mount_id, line.removeprefix("COPY . ").strip()))
        environment.pop("PATH", None)  # the image's own directories are not here
        return ImageSettings(environment=environment, workdir=workdir, copies=copies)

    def lay_out(self, image_id: str, mount_ids: Iterable[str], root: Path) -> None:
        """Write the files of the image and of the mounts below `root`."""
        root.mkdir(parents=True)
        copies = self.settings(image_id).copies
        for mount_id, prefix in [*copies, *((mount_id, "/") for mount_id in mount_ids)]:
            for file in self.mounts.get(mount_id, []):
                path = root / prefix.strip("/") / file.filename.lstrip("/")
                path.parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(self.files / file.sha256_hex, path)
