"""Functions and classes: creating them, looking them up, binding parameters and options."""

from __future__ import annotations

import dataclasses
import hashlib
from typing import Literal

from google.protobuf.json_format import MessageToDict, ParseDict
from grpclib import GRPCError, Status
from modal_proto import api_pb2 as pb

from .handles import describe_function
from .pools import Pools, live_containers
from .types import (
    Caller,
    Deployment,
    Function,
    FunctionSpec,
    World,
    environment_name,
)

SAME_OPTIONS = (
    "timeout_secs",
    "max_concurrent_inputs",
    "target_concurrent_inputs",
    "batch_max_size",
    "batch_linger_ms",
    "cloud_provider_str",
)
"""Options of `with_options` that a Function has under the same name."""
AUTOSCALER_OPTIONS = {
    "concurrency_limit": "max_containers",
    "buffer_containers": "buffer_containers",
    "task_idle_timeout_secs": "scaledown_window",
}
"""Options that are settings of a Function's autoscaler."""


class Functions:
    """RPCs of functions and classes."""

    def __init__(self, world: World, pools: Pools) -> None:
        self.world = world
        self.pools = pools

    def get(self, function_id: str) -> Function:
        """A function by its id."""
        if function_id not in self.world.functions:
            raise GRPCError(Status.NOT_FOUND, f"Function {function_id!r} not found")
        return self.world.functions[function_id]

    async def FunctionPrecreate(
        self, request: pb.FunctionPrecreateRequest, caller: Caller
    ) -> pb.FunctionPrecreateResponse:
        """Give the function an id, so that others can refer to it before it is there."""
        definition = pb.Function(
            function_name=request.function_name,
            function_type=request.function_type,
            function_schema=request.function_schema,
            supported_input_formats=request.supported_input_formats,
            supported_output_formats=request.supported_output_formats,
            is_class=bool(request.method_definitions),
        )
        for name, method in request.method_definitions.items():
            definition.method_definitions[name].CopyFrom(method)
        spec = FunctionSpec(definition=definition, data=pb.FunctionData(), definition_id="")
        function = self._stage(request.existing_function_id, request.app_id, spec)
        return pb.FunctionPrecreateResponse(
            function_id=function.id, handle_metadata=describe_function(function, spec)
        )

    async def FunctionCreate(
        self, request: pb.FunctionCreateRequest, caller: Caller
    ) -> pb.FunctionCreateResponse:
        if request.function_data.ranked_functions:
            data = request.function_data
            definition = data.ranked_functions[0].function
        else:
            definition = request.function
            said = MessageToDict(definition, preserving_proto_field_name=True)
            data = ParseDict(said, pb.FunctionData(), ignore_unknown_fields=True)
            data.ranked_functions.add(rank=0).function.CopyFrom(definition)
        spec = FunctionSpec(definition=definition, data=data, definition_id=self.world.new_id("de"))
        function = self._stage(request.existing_function_id, request.app_id, spec)
        return pb.FunctionCreateResponse(
            function_id=function.id,
            function=definition,
            function_data=data,
            handle_metadata=describe_function(function, spec),
        )

    def _stage(self, function_id: str, app_id: str, spec: FunctionSpec) -> Function:
        """What containers run is replaced when the app is published, not before."""
        function_id = function_id or self.world.new_id("fu")
        if function_id not in self.world.functions:
            self.world.functions[function_id] = Function(id=function_id, app_id=app_id, spec=spec)
        function = self.world.functions[function_id]
        function.staged = spec
        return function

    async def FunctionGet(
        self, request: pb.FunctionGetRequest, caller: Caller
    ) -> pb.FunctionGetResponse:
        deployment = self._deployment(
            request.app_name, request.environment_name, request.app_version
        )
        function_id = _id_of(deployment, "function", request.object_tag, request.app_name)
        function = self.get(function_id)
        if request.app_version:
            function = self._pinned(function, deployment, request.object_tag)
        return pb.FunctionGetResponse(
            function_id=function.id,
            handle_metadata=describe_function(function),
            function=function.spec.data,
        )

    def _pinned(self, function: Function, deployment: Deployment, name: str) -> Function:
        """The function as it was in that deployment, which later ones do not touch."""
        pinned_id = f"{function.id}v{deployment.version}"
        if pinned_id not in self.world.functions:
            self.world.functions[pinned_id] = Function(
                id=pinned_id,
                app_id=function.app_id,
                spec=deployment.specs[name],
                pinned_version=deployment.version,
            )
        return self.world.functions[pinned_id]

    async def FunctionGetById(
        self, request: pb.FunctionGetByIdRequest, caller: Caller
    ) -> pb.FunctionGetByIdResponse:
        function = self.get(request.function_id)
        return pb.FunctionGetByIdResponse(
            function=function.spec.data, handle_metadata=describe_function(function)
        )

    async def ClassCreate(
        self, request: pb.ClassCreateRequest, caller: Caller
    ) -> pb.ClassCreateResponse:
        class_id = request.existing_class_id or self.world.new_id("cs")
        self.world.classes[class_id] = request.app_id
        return pb.ClassCreateResponse(class_id=class_id, handle_metadata=pb.ClassHandleMetadata())

    async def ClassGet(self, request: pb.ClassGetRequest, caller: Caller) -> pb.ClassGetResponse:
        deployment = self._deployment(request.app_name, request.environment_name, 0)
        return pb.ClassGetResponse(
            class_id=_id_of(deployment, "class", request.object_tag, request.app_name),
            handle_metadata=pb.ClassHandleMetadata(),
        )

    def _deployment(self, app_name: str, environment: str, version: int) -> Deployment:
        environment = environment_name(environment)
        app_id = self.world.deployed.get((environment, app_name))
        if app_id is None or not self.world.apps[app_id].deployments:
            raise GRPCError(
                Status.NOT_FOUND, f"App {app_name!r} not found in environment {environment!r}"
            )
        deployments = self.world.apps[app_id].deployments
        if not version:
            return deployments[-1]
        if not 1 <= version <= len(deployments):
            raise GRPCError(
                Status.NOT_FOUND,
                f"Version {version} of app {app_name!r} not found; the live one is "
                f"{len(deployments)}",
            )
        return deployments[version - 1]

    async def FunctionBindParams(
        self, request: pb.FunctionBindParamsRequest, caller: Caller
    ) -> pb.FunctionBindParamsResponse:
        """Each set of parameters and options is a pool of its own."""
        base = self.get(request.function_id)
        key = base.spec.definition_id.encode() + request.SerializeToString(deterministic=True)
        bound_id = f"{base.id}-{hashlib.sha256(key).hexdigest()[:12]}"
        if bound_id not in self.world.functions:
            self.world.functions[bound_id] = Function(
                id=bound_id,
                app_id=base.app_id,
                spec=FunctionSpec(
                    definition=with_options(base.definition, request.function_options),
                    data=base.spec.data,
                    definition_id=base.spec.definition_id,
                ),
                base_id=base.id,
                params=request.serialized_params,
                pinned_version=base.pinned_version,
            )
        return pb.FunctionBindParamsResponse(
            bound_function_id=bound_id,
            handle_metadata=describe_function(self.world.functions[bound_id]),
        )

    async def FunctionGetSchedulingParams(
        self, request: pb.FunctionGetSchedulingParamsRequest, caller: Caller
    ) -> pb.FunctionGetSchedulingParamsResponse:
        settings = self.get(request.function_id).definition.autoscaler_settings
        return pb.FunctionGetSchedulingParamsResponse(
            autoscaler_configuration=pb.AutoscalerConfiguration(settings=settings)
        )

    async def FunctionUpdateSchedulingParams(
        self, request: pb.FunctionUpdateSchedulingParamsRequest, caller: Caller
    ) -> pb.FunctionUpdateSchedulingParamsResponse:
        """Settings of this function alone, until the next deployment."""
        function = self.get(request.function_id)
        definition = pb.Function()
        definition.CopyFrom(function.definition)
        definition.autoscaler_settings.MergeFrom(request.settings)
        function.spec = dataclasses.replace(function.spec, definition=definition)
        self.pools.scale(function)
        return pb.FunctionUpdateSchedulingParamsResponse(
            current_settings=function.definition.autoscaler_settings
        )

    async def FunctionGetCurrentStats(
        self, request: pb.FunctionGetCurrentStatsRequest, caller: Caller
    ) -> pb.FunctionStats:
        function = self.get(request.function_id)
        return pb.FunctionStats(
            backlog=len(function.queue),
            num_total_tasks=len(live_containers(function)),
            num_running_inputs=sum(len(one.inputs) for one in function.containers.values()),
        )


def with_options(definition: pb.Function, options: pb.FunctionOptions) -> pb.Function:
    """A definition with what `Cls.with_options` overrides."""
    bound = pb.Function()
    bound.CopyFrom(definition)
    bound.resources.MergeFrom(options.resources)
    given = {field.name for field, _ in options.ListFields()}
    if "retry_policy" in given:
        bound.retry_policy.CopyFrom(options.retry_policy)
    if "scheduler_placement" in given:
        bound.scheduler_placement.CopyFrom(options.scheduler_placement)
    for name in given.intersection(SAME_OPTIONS):
        setattr(bound, name, getattr(options, name))
    for name, setting in AUTOSCALER_OPTIONS.items():
        if name in given:
            setattr(bound.autoscaler_settings, setting, getattr(options, name))
    if options.replace_secret_ids:
        bound.secret_ids[:] = options.secret_ids
    if options.replace_volume_mounts:
        del bound.volume_mounts[:]
        bound.volume_mounts.extend(options.volume_mounts)
    return bound


def _id_of(
    deployment: Deployment, kind: Literal["function", "class"], name: str, app_name: str
) -> str:
    ids = deployment.function_ids if kind == "function" else deployment.class_ids
    if name in ids:
        return ids[name]
    details = []
    if kind == "function" and name in deployment.class_ids:
        details = [pb.FunctionLookupError(reason=pb.FunctionLookupError.REASON_CLASS_NAME_USED)]
    raise GRPCError(Status.NOT_FOUND, f"{name!r} not found in app {app_name!r}", details)
