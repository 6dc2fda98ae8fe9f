"""Blobs and volume blocks: what clients and containers send beside gRPC, over HTTP."""

from __future__ import annotations

import hashlib

import aiohttp.web
from modal_proto import api_pb2 as pb

from .types import Caller, World

Request = aiohttp.web.Request
Response = aiohttp.web.Response


class Files:
    """RPCs of blobs, and the HTTP service that holds the bytes."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.blobs = world.state / "blobs"
        self.blobs.mkdir(parents=True, exist_ok=True)

    async def BlobCreate(
        self, request: pb.BlobCreateRequest, caller: Caller
    ) -> pb.BlobCreateResponse:
        blob_id = self.world.new_id("bl")
        url = f"{caller.files_url}/blob/{blob_id}"
        return pb.BlobCreateResponse(
            blob_id=blob_id,
            upload_url=url,
            blob_ids=[blob_id],
            upload_urls=pb.UploadUrlList(items=[url]),
        )

    async def BlobGet(self, request: pb.BlobGetRequest, caller: Caller) -> pb.BlobGetResponse:
        return pb.BlobGetResponse(download_url=f"{caller.files_url}/blob/{request.blob_id}")

    def routes(self) -> list[aiohttp.web.RouteDef]:
        """What the HTTP service answers."""
        return [
            aiohttp.web.put("/blob/{id}", self._put_blob),
            aiohttp.web.get("/blob/{id}", self._get_blob),
            aiohttp.web.put("/block", self._put_block),
            aiohttp.web.get("/volume/{volume}/{start}/{length}/{path:.*}", self._get_block),
        ]

    async def _put_blob(self, request: Request) -> Response:
        data = await request.read()
        (self.blobs / request.match_info["id"]).write_bytes(data)
        return Response(headers={"ETag": f'"{hashlib.md5(data).hexdigest()}"'})

    async def _get_blob(self, request: Request) -> aiohttp.web.FileResponse:
        return aiohttp.web.FileResponse(self.blobs / request.match_info["id"])

    async def _put_block(self, request: Request) -> Response:
        data = await request.read()
        digest = hashlib.sha256(data).hexdigest()
        (self.world.state / "blocks" / digest).write_bytes(data)
        return Response(text=digest)

    async def _get_block(self, request: Request) -> Response:
        match = request.match_info
        path = self.world.state / "volumes" / match["volume"] / match["path"]
        with path.open("rb") as file:
            file.seek(int(match["start"]))
            return Response(body=file.read(int(match["length"])))
