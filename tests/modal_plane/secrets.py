"""Secrets: variables that containers get, by name or given with the app."""

from __future__ import annotations

from collections.abc import Iterable

from google.protobuf.empty_pb2 import Empty
from grpclib import GRPCError, Status
from modal_proto import api_pb2 as pb

from .types import Caller, World, environment_name


class Secrets:
    """RPCs of secrets."""

    def __init__(self, world: World) -> None:
        self.world = world
        self._variables: dict[str, dict[str, str]] = {}
        self._named: dict[tuple[str, str], str] = {}

    def environment(self, secret_ids: Iterable[str]) -> dict[str, str]:
        """The variables of all these secrets; of equal names the last counts."""
        return {k: v for one in secret_ids for k, v in self._variables[one].items()}

    async def SecretGetOrCreate(
        self, request: pb.SecretGetOrCreateRequest, caller: Caller
    ) -> pb.SecretGetOrCreateResponse:
        environment = environment_name(request.environment_name)
        key = (environment, request.deployment_name)
        secret_id = self._named.get(key) if request.deployment_name else None
        how = request.object_creation_type
        if secret_id is None:
            if request.deployment_name and how == pb.OBJECT_CREATION_TYPE_UNSPECIFIED:
                raise GRPCError(
                    Status.NOT_FOUND,
                    f"Secret {request.deployment_name!r} not found in environment {environment!r}",
                )
            secret_id = self.world.new_id("st")
            self._variables[secret_id] = dict(request.env_dict)
            if request.deployment_name:
                self._named[key] = secret_id
        elif how == pb.OBJECT_CREATION_TYPE_CREATE_FAIL_IF_EXISTS:
            raise GRPCError(
                Status.ALREADY_EXISTS, f"Secret {request.deployment_name!r} already exists"
            )
        elif how == pb.OBJECT_CREATION_TYPE_CREATE_OVERWRITE_IF_EXISTS:
            self._variables[secret_id] = dict(request.env_dict)
        variables = self._variables[secret_id]
        if missing := [name for name in request.required_keys if name not in variables]:
            raise GRPCError(
                Status.FAILED_PRECONDITION,
                f"Secret {request.deployment_name!r} is missing keys {missing}",
            )
        return pb.SecretGetOrCreateResponse(
            secret_id=secret_id,
            metadata=pb.SecretMetadata(name=request.deployment_name, keys=list(variables)),
        )

    async def SecretList(
        self, request: pb.SecretListRequest, caller: Caller
    ) -> pb.SecretListResponse:
        environment = environment_name(request.environment_name)
        return pb.SecretListResponse(
            items=[
                pb.SecretListItem(
                    label=name,
                    secret_id=secret_id,
                    environment_name=environment,
                    metadata=pb.SecretMetadata(name=name),
                )
                for (where, name), secret_id in self._named.items()
                if where == environment
            ],
            environment_name=environment,
        )

    async def SecretDelete(self, request: pb.SecretDeleteRequest, caller: Caller) -> Empty:
        self._named = {k: v for k, v in self._named.items() if v != request.secret_id}
        return Empty()
