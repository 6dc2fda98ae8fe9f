"""What a client is told about an object when it looks one up."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable

from modal_proto import api_pb2 as pb

from .types import App, Deployment, Function, FunctionSpec, World


def describe_function(
    function: Function, spec: FunctionSpec | None = None
) -> pb.FunctionHandleMetadata:
    """The handle of a function, by `spec` where it is another than the live one."""
    spec = spec or function.spec
    definition = spec.definition
    handle = pb.FunctionHandleMetadata(
        function_name=definition.function_name,
        function_type=definition.function_type,
        web_url=definition.web_url,
        is_method=definition.is_method,
        definition_id=spec.definition_id,
        class_parameter_info=definition.class_parameter_info,
        function_schema=definition.function_schema,
        supported_input_formats=definition.supported_input_formats,
        supported_output_formats=definition.supported_output_formats,
        app_id=function.app_id,
        base_function_id=function.base_id,
    )
    for name, method in definition.method_definitions.items():
        handle.method_handle_metadata[name].CopyFrom(
            pb.FunctionHandleMetadata(
                function_name=method.function_name,
                function_type=method.function_type,
                web_url=method.web_url,
                is_method=True,
                use_method_name=name,
                function_schema=method.function_schema,
                supported_input_formats=method.supported_input_formats,
                supported_output_formats=method.supported_output_formats,
                app_id=function.app_id,
            )
        )
    return handle


def describe_mount(mount_id: str) -> pb.MountHandleMetadata:
    """The handle of a mount."""
    checksum = hashlib.sha256(mount_id.encode()).hexdigest()
    return pb.MountHandleMetadata(content_checksum_sha256_hex=checksum)


def describe_object(world: World, object_id: str) -> pb.Object:
    """The handle of anything, by its id."""
    described = pb.Object(object_id=object_id)
    if object_id in world.functions:
        metadata = describe_function(world.functions[object_id])
        described.function_handle_metadata.CopyFrom(metadata)
    elif object_id in world.classes:
        described.class_handle_metadata.CopyFrom(pb.ClassHandleMetadata())
    elif object_id.startswith("vo-"):
        version = pb.VOLUME_FS_VERSION_V2
        described.volume_metadata.CopyFrom(pb.VolumeMetadata(version=version))
    elif object_id.startswith("mo-"):
        described.mount_handle_metadata.CopyFrom(describe_mount(object_id))
    return described


def describe_app(
    world: World, app: App, deployment: Deployment | None = None, more: Iterable[str] = ()
) -> pb.AppLayout:
    """The functions and classes of an app's version, the live one by default.

    Args:
        more: Ids of other objects to describe.
    """
    deployment = deployment or app.live
    if deployment is None:
        return pb.AppLayout()
    ids = [*deployment.function_ids.values(), *deployment.class_ids.values(), *more]
    return pb.AppLayout(
        objects=[describe_object(world, one) for one in dict.fromkeys(ids)],
        function_ids=deployment.function_ids,
        class_ids=deployment.class_ids,
    )
