"""Apps: deploying, versions, `modal run`, logs."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable

from google.protobuf.empty_pb2 import Empty
from grpclib import GRPCError, Status
from modal_proto import api_pb2 as pb

from .handles import describe_app
from .lifecycle import Lifecycle
from .types import App, Caller, Deployment, World, environment_name

SendLogs = Callable[[pb.TaskLogsBatch], Awaitable[None]]


class Apps:
    """RPCs of apps."""

    def __init__(self, world: World, lifecycle: Lifecycle) -> None:
        self.world = world
        self.lifecycle = lifecycle

    def _app(self, app_id: str) -> App:
        if app_id not in self.world.apps:
            raise GRPCError(Status.NOT_FOUND, f"App {app_id!r} not found")
        return self.world.apps[app_id]

    def _new(self, name: str, environment: str, state: pb.AppState.ValueType) -> App:
        app = App(
            id=self.world.new_id("ap"),
            name=name,
            environment=environment_name(environment),
            state=state,
        )
        self.world.apps[app.id] = app
        return app

    async def AppCreate(self, request: pb.AppCreateRequest, caller: Caller) -> pb.AppCreateResponse:
        app = self._new(request.description, request.environment_name, request.app_state)
        return pb.AppCreateResponse(app_id=app.id, app_page_url=_page(app))

    async def AppGetOrCreate(
        self, request: pb.AppGetOrCreateRequest, caller: Caller
    ) -> pb.AppGetOrCreateResponse:
        key = (environment_name(request.environment_name), request.app_name)
        if key not in self.world.deployed:
            if request.object_creation_type != pb.OBJECT_CREATION_TYPE_CREATE_IF_MISSING:
                raise GRPCError(Status.NOT_FOUND, f"App {request.app_name!r} not found")
            app = self._new(request.app_name, key[0], pb.APP_STATE_DEPLOYED)
            self.world.deployed[key] = app.id
        return pb.AppGetOrCreateResponse(app_id=self.world.deployed[key])

    async def AppGetByDeploymentName(
        self, request: pb.AppGetByDeploymentNameRequest, caller: Caller
    ) -> pb.AppGetByDeploymentNameResponse:
        key = (environment_name(request.environment_name), request.name)
        app_id = self.world.deployed.get(key, "")
        lifecycle = _lifecycle(self.world.apps[app_id]) if app_id else None
        return pb.AppGetByDeploymentNameResponse(
            app_id=app_id, environment_name=key[0], lifecycle=lifecycle
        )

    async def AppGetLifecycle(
        self, request: pb.AppGetLifecycleRequest, caller: Caller
    ) -> pb.AppGetLifecycleResponse:
        return pb.AppGetLifecycleResponse(lifecycle=_lifecycle(self._app(request.app_id)))

    async def AppList(self, request: pb.AppListRequest, caller: Caller) -> pb.AppListResponse:
        return pb.AppListResponse(
            apps=[
                pb.AppListResponse.AppListItem(
                    app_id=app.id,
                    description=app.name,
                    name=app.name,
                    state=app.state,
                    stopped_at=app.stopped_at,
                    n_running_tasks=sum(len(f.containers) for f in self.world.functions_of(app.id)),
                )
                for app in self.world.apps.values()
            ]
        )

    async def AppDeploymentHistory(
        self, request: pb.AppDeploymentHistoryRequest, caller: Caller
    ) -> pb.AppDeploymentHistoryResponse:
        app = self._app(request.app_id)
        return pb.AppDeploymentHistoryResponse(
            app_deployment_histories=[
                pb.AppDeploymentHistory(
                    app_id=app.id,
                    version=one.version,
                    tag=one.tag,
                    client_version=one.client_version,
                    deployed_at=one.deployed_at,
                )
                for one in reversed(app.deployments)
            ],
            production_app_version=app.live.version if app.live else 0,
        )

    async def AppGetLayout(
        self, request: pb.AppGetLayoutRequest, caller: Caller
    ) -> pb.AppGetLayoutResponse:
        return pb.AppGetLayoutResponse(
            app_layout=describe_app(self.world, self._app(request.app_id))
        )

    async def AppPublish(
        self, request: pb.AppPublishRequest, caller: Caller
    ) -> pb.AppPublishResponse:
        """Make what was created the app's live version; old containers finish and go."""
        app = self._app(request.app_id)
        if request.app_state == pb.APP_STATE_DEPLOYED:
            app.name = request.name
            self.world.deployed[(app.environment, request.name)] = app.id
        app.state = request.app_state or app.state
        app.stopped_at = 0.0
        for function_id in request.function_ids.values():
            function = self.world.functions[function_id]
            function.spec, function.staged = function.staged or function.spec, None
        deployment = Deployment(
            version=len(app.deployments) + 1,
            function_ids=dict(request.function_ids),
            class_ids=dict(request.class_ids),
            specs={
                name: self.world.functions[function_id].spec
                for name, function_id in request.function_ids.items()
            },
            tag=request.deployment_tag,
            client_version=caller.version,
            deployed_at=time.time(),
        )
        app.deployments.append(deployment)
        self.world.events.add(
            "app_published", app=app.id, name=app.name, version=deployment.version
        )
        self.lifecycle.roll_over(app)
        return pb.AppPublishResponse(url=_page(app), deployed_at=deployment.deployed_at)

    async def AppHeartbeat(self, request: pb.AppHeartbeatRequest, caller: Caller) -> Empty:
        self._app(request.app_id).last_heartbeat = time.time()
        return Empty()

    async def AppSetTags(self, request: pb.AppSetTagsRequest, caller: Caller) -> Empty:
        return Empty()

    async def AppClientDisconnect(
        self, request: pb.AppClientDisconnectRequest, caller: Caller
    ) -> Empty:
        self.lifecycle.client_left(self._app(request.app_id))
        return Empty()

    async def AppStop(self, request: pb.AppStopRequest, caller: Caller) -> Empty:
        self.lifecycle.stop_app(self._app(request.app_id))
        return Empty()

    async def stream_AppGetLogs(
        self, request: pb.AppGetLogsRequest, caller: Caller, send: SendLogs
    ) -> None:
        """Lines of the app's containers from `last_entry_id` on, until the app is done."""
        app = self._app(request.app_id)
        position = int(request.last_entry_id or 0)
        until = time.time() + request.timeout
        while True:
            for container_id, function_id, line in app.logs[position:]:
                position += 1
                await send(
                    pb.TaskLogsBatch(
                        task_id=container_id,
                        function_id=function_id,
                        entry_id=str(position),
                        items=[
                            pb.TaskLogs(
                                data=line,
                                file_descriptor=pb.FILE_DESCRIPTOR_STDOUT,
                                timestamp=time.time(),
                            )
                        ],
                    )
                )
            if app.is_stopped and not any(f.containers for f in self.world.functions_of(app.id)):
                await send(pb.TaskLogsBatch(app_done=True))
                return
            if time.time() > until:
                return
            await app.log_signal.wait(min(until, time.time() + 1))


def _lifecycle(app: App) -> pb.AppLifecycle:
    return pb.AppLifecycle(
        app_state=app.state,
        deployed_at=app.live.deployed_at if app.live else 0.0,
        version=app.live.version if app.live else 0,
        stopped_at=app.stopped_at,
    )


def _page(app: App) -> str:
    return f"http://modal-plane.invalid/apps/{app.id}"
