"""What tests ask of the plane: its state, and faults."""

from __future__ import annotations

import asyncio
from typing import Any

import aiohttp.web
from google.protobuf.json_format import MessageToDict

from .images import Images
from .line import Line
from .pools import Pools
from .service import Dispatcher
from .types import Container, Function, World, environment_name
from .volumes import Volumes

Request = aiohttp.web.Request
Response = aiohttp.web.Response


class Admin:
    """HTTP service below `/admin`: GET `state`, POST a fault with its arguments in the query."""

    def __init__(
        self,
        world: World,
        dispatcher: Dispatcher,
        pools: Pools,
        images: Images,
        volumes: Volumes,
        lines: list[Line],
    ) -> None:
        self.world = world
        self.dispatcher = dispatcher
        self.pools = pools
        self.images = images
        self.volumes = volumes
        self.lines = lines
        self._restoration: asyncio.TimerHandle | None = None

    def routes(self) -> list[aiohttp.web.RouteDef]:
        """What the HTTP service answers."""
        return [
            aiohttp.web.get("/admin/state", self._state),
            aiohttp.web.post("/admin/preempt", self._preempt),
            aiohttp.web.post("/admin/kill", self._kill),
            aiohttp.web.post("/admin/drop_connections", self._drop_connections),
            aiohttp.web.post("/admin/restore_connections", self._restore_connections),
            aiohttp.web.post("/admin/fill_volume", self._fill_volume),
            aiohttp.web.post("/admin/empty_volume", self._empty_volume),
        ]

    async def _state(self, request: Request) -> Response:
        return aiohttp.web.json_response(
            {
                "rpcs": dict(self.dispatcher.counts),
                "client_rpcs": dict(self.dispatcher.client_counts),
                "events": self.world.events.events,
                "apps": [
                    {
                        "id": app.id,
                        "name": app.name,
                        "version": app.live.version if app.live else 0,
                        "stopped": app.is_stopped,
                    }
                    for app in self.world.apps.values()
                ],
                "tasks": [_describe_container(one) for one in self.world.open_containers()],
                "functions": {
                    one.id: _describe_function(one) for one in self.world.functions.values()
                },
                "images": {
                    image_id: {
                        "lines": list(image.dockerfile_commands),
                        "files": {
                            file.filename: file.data.decode(errors="replace")
                            for file in image.context_files
                        },
                    }
                    for image_id, image in self.images.images.items()
                },
                "volumes": {name: one for (_, name), one in self.volumes.named.items()},
            }
        )

    def _container(self, request: Request) -> Container:
        container = self.world.containers.get(request.query["task"])
        if container is None or container.id not in container.function.containers:
            raise aiohttp.web.HTTPNotFound(text=f"no open container {request.query['task']}")
        return container

    async def _preempt(self, request: Request) -> Response:
        self.world.start(self.pools.preempt(self._container(request)))
        return Response()

    async def _kill(self, request: Request) -> Response:
        self.pools.kill(self._container(request))
        return Response()

    async def _drop_connections(self, request: Request) -> Response:
        seconds = float(request.query["seconds"])
        self.world.events.add("connections_dropped", seconds=seconds)
        for line in self.lines:
            line.cut()
        self._stop_waiting()
        loop = asyncio.get_running_loop()
        self._restoration = loop.call_later(seconds, lambda: self.world.start(self._restore()))
        return Response()

    async def _restore_connections(self, request: Request) -> Response:
        self._stop_waiting()
        await self._restore()
        return Response()

    async def _restore(self) -> None:
        for line in self.lines:
            await line.open()
        self.world.events.add("connections_restored")

    def _stop_waiting(self) -> None:
        if self._restoration is not None:
            self._restoration.cancel()

    def _volume(self, request: Request) -> str:
        key = (environment_name(""), request.query["name"])
        if key not in self.volumes.named:
            raise aiohttp.web.HTTPNotFound(text=f"no volume {request.query['name']}")
        return self.volumes.named[key]

    async def _fill_volume(self, request: Request) -> Response:
        self.volumes.full.add(self._volume(request))
        return Response()

    async def _empty_volume(self, request: Request) -> Response:
        self.volumes.full.discard(self._volume(request))
        return Response()


def _describe_container(container: Container) -> dict[str, Any]:
    return {
        "id": container.id,
        "function": container.function.name,
        "function_id": container.function.id,
        "gpu": container.function.gpu,
        "python": container.python,
        "pid": container.process.pid if container.process else None,
        "inputs": list(container.inputs),
        "ready": container.is_ready,
        "ending": container.ending,
        "volumes": {one: str(volume.path) for one, volume in container.volumes.items()},
    }


def _describe_function(function: Function) -> dict[str, Any]:
    said = MessageToDict(function.definition, preserving_proto_field_name=True)
    said.pop("function_serialized", None)
    said.pop("class_serialized", None)
    return {
        **said,
        "id": function.id,
        "app_id": function.app_id,
        "queued": len(function.queue),
        "pinned_version": function.pinned_version,
    }
