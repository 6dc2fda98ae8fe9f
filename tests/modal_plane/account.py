"""The account: token, environment, and the RPCs that only say hello."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Literal

from google.protobuf.empty_pb2 import Empty
from grpclib import GRPCError, Status
from modal._utils.jwt_utils import DecodedJwt
from modal_proto import api_pb2 as pb

from .images import BUILDER_VERSION
from .launcher import CONTAINER_HEADER
from .line import Line
from .types import Caller, World, environment_name

TOKEN_ID = "ak-local"
TOKEN_SECRET = "as-local"
DAY_S = 86400


@dataclass(frozen=True, kw_only=True, slots=True)
class Addresses:
    """Where a caller reaches the plane."""

    server_url: str
    files_url: str


def new_token() -> str:
    """A token in the form that the client looks into to see when it ends."""
    token: str = DecodedJwt.encode_without_signature({"exp": int(time.time()) + DAY_S})
    return token


class Account:
    """Tells callers apart and lets in those with the token."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.line: Line | None = None
        self.addresses: dict[Literal["client", "container"], Addresses] = {}
        """Set once the plane listens."""

    def identify(self, metadata: dict[str, str], port: int) -> Caller:
        """A container by its header, a client by its token.

        Raises:
            GRPCError: UNAUTHENTICATED for a client without the right token.
        """
        version = metadata.get("x-modal-client-version", "")
        container_id = metadata.get(CONTAINER_HEADER)
        token = (metadata.get("x-modal-token-id"), metadata.get("x-modal-token-secret"))
        if container_id in self.world.containers:
            addresses = self.addresses["container"]
            name, container = container_id, self.world.containers[container_id]
        elif token == (TOKEN_ID, TOKEN_SECRET):
            addresses = self.addresses["client"]
            number = self.line.connection(port) if self.line else 0
            name, container = f"client-{number}", None
        else:
            raise GRPCError(
                Status.UNAUTHENTICATED, "Token validation failed. Could not authenticate client."
            )
        return Caller(
            name=name,
            container=container,
            server_url=addresses.server_url,
            files_url=addresses.files_url,
            version=version,
        )

    async def ClientHello(self, request: Empty, caller: Caller) -> pb.ClientHelloResponse:
        return pb.ClientHelloResponse(image_builder_version=BUILDER_VERSION)

    async def AuthTokenGet(
        self, request: pb.AuthTokenGetRequest, caller: Caller
    ) -> pb.AuthTokenGetResponse:
        return pb.AuthTokenGetResponse(token=new_token())

    async def TokenInfoGet(
        self, request: pb.TokenInfoGetRequest, caller: Caller
    ) -> pb.TokenInfoGetResponse:
        return pb.TokenInfoGetResponse(token_id=TOKEN_ID)

    async def EnvironmentGetOrCreate(
        self, request: pb.EnvironmentGetOrCreateRequest, caller: Caller
    ) -> pb.EnvironmentGetOrCreateResponse:
        return pb.EnvironmentGetOrCreateResponse(
            environment_id="en-1",
            metadata=pb.EnvironmentMetadata(
                name=environment_name(request.deployment_name),
                settings=pb.EnvironmentSettings(image_builder_version=BUILDER_VERSION),
            ),
        )

    async def WorkspaceNameLookup(
        self, request: Empty, caller: Caller
    ) -> pb.WorkspaceNameLookupResponse:
        return pb.WorkspaceNameLookupResponse(workspace_name="local", username="local")
