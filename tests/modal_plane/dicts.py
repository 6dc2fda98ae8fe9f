"""Dicts: shared key-value stores."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from google.protobuf.empty_pb2 import Empty
from grpclib import GRPCError, Status
from modal_proto import api_pb2 as pb

from .types import Caller, World, environment_name

SendEntry = Callable[[pb.DictEntry], Awaitable[None]]


class Dicts:
    """RPCs of Dicts; keys and values are the client's pickles."""

    def __init__(self, world: World) -> None:
        self.world = world
        self._entries: dict[str, dict[bytes, bytes]] = {}
        self._named: dict[tuple[str, str], str] = {}

    def _dict(self, dict_id: str) -> dict[bytes, bytes]:
        if dict_id not in self._entries:
            raise GRPCError(Status.NOT_FOUND, f"Dict {dict_id!r} not found")
        return self._entries[dict_id]

    async def DictGetOrCreate(
        self, request: pb.DictGetOrCreateRequest, caller: Caller
    ) -> pb.DictGetOrCreateResponse:
        key = (environment_name(request.environment_name), request.deployment_name)
        dict_id = self._named.get(key) if request.deployment_name else None
        if dict_id is None:
            if request.object_creation_type == pb.OBJECT_CREATION_TYPE_UNSPECIFIED:
                raise GRPCError(Status.NOT_FOUND, f"Dict {request.deployment_name!r} not found")
            dict_id = self.world.new_id("di")
            self._entries[dict_id] = {}
            if request.deployment_name:
                self._named[key] = dict_id
        self._entries[dict_id].update({entry.key: entry.value for entry in request.data})
        return pb.DictGetOrCreateResponse(
            dict_id=dict_id, metadata=pb.DictMetadata(name=request.deployment_name)
        )

    async def DictHeartbeat(self, request: pb.DictHeartbeatRequest, caller: Caller) -> Empty:
        return Empty()

    async def DictUpdate(
        self, request: pb.DictUpdateRequest, caller: Caller
    ) -> pb.DictUpdateResponse:
        """With `if_not_exists` nothing is written where a key is there already."""
        entries = self._dict(request.dict_id)
        created = not any(entry.key in entries for entry in request.updates)
        if created or not request.if_not_exists:
            entries.update({entry.key: entry.value for entry in request.updates})
        return pb.DictUpdateResponse(created=created)

    async def DictGet(self, request: pb.DictGetRequest, caller: Caller) -> pb.DictGetResponse:
        entries = self._dict(request.dict_id)
        found = request.key in entries
        return pb.DictGetResponse(found=found, value=entries.get(request.key))

    async def DictContains(
        self, request: pb.DictContainsRequest, caller: Caller
    ) -> pb.DictContainsResponse:
        return pb.DictContainsResponse(found=request.key in self._dict(request.dict_id))

    async def DictPop(self, request: pb.DictPopRequest, caller: Caller) -> pb.DictPopResponse:
        entries = self._dict(request.dict_id)
        found = request.key in entries
        return pb.DictPopResponse(found=found, value=entries.pop(request.key, None))

    async def DictLen(self, request: pb.DictLenRequest, caller: Caller) -> pb.DictLenResponse:
        return pb.DictLenResponse(len=len(self._dict(request.dict_id)))

    async def DictClear(self, request: pb.DictClearRequest, caller: Caller) -> Empty:
        self._dict(request.dict_id).clear()
        return Empty()

    async def DictDelete(self, request: pb.DictDeleteRequest, caller: Caller) -> Empty:
        self._dict(request.dict_id)
        del self._entries[request.dict_id]
        self._named = {k: v for k, v in self._named.items() if v != request.dict_id}
        return Empty()

    async def stream_DictContents(
        self, request: pb.DictContentsRequest, caller: Caller, send: SendEntry
    ) -> None:
        for key, value in list(self._dict(request.dict_id).items()):
            await send(
                pb.DictEntry(
                    key=key if request.keys else b"", value=value if request.values else b""
                )
            )
