"""The plane: all parts, and the ports they are reached by."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import signal
import socket

import aiohttp.web
import grpclib.server
from aiohttp.typedefs import Handler, Middleware
from modal._utils.grpc_utils import custom_detail_codec
from modal_proto.api_grpc import ModalClientBase
from modal_proto.task_command_router_grpc import TaskCommandRouterBase

from .account import TOKEN_ID, TOKEN_SECRET, Account, Addresses
from .admin import Admin
from .apps import Apps
from .calls import Calls
from .containers import Containers
from .dicts import Dicts
from .files import Files
from .functions import Functions
from .images import Images
from .isolation import check_namespaces
from .launcher import Launcher
from .lifecycle import Lifecycle
from .line import Line
from .options import Options
from .pools import Pools
from .processes import end_with_parent, kill_everything
from .sandbox_router import SandboxRouter
from .sandboxes import Sandboxes
from .secrets import Secrets
from .service import Dispatcher
from .types import World
from .volume_rpcs import VolumeRpcs
from .volumes import Volumes

HOST = "127.0.0.1"
ENVIRONMENT_FILE = "env.json"
"""In the state directory; written once the plane listens."""
MAX_UPLOAD = 1 << 34
STOP_S = 5.0
"""How long containers may take to end when the plane does."""


class Plane:
    """A control plane in this process."""

    def __init__(self, options: Options) -> None:
        self.world = World(options)
        self.images = Images(self.world)
        self.volumes = Volumes(self.world)
        self.secrets = Secrets(self.world)
        self.files = Files(self.world)
        self.account = Account(self.world)
        self.launcher = Launcher(self.world, self.images, self.volumes, self.secrets)
        self.pools = Pools(self.world, self.launcher)
        self.lifecycle = Lifecycle(self.world, self.pools)
        self.sandboxes = Sandboxes(self.world, self.launcher)
        functions = Functions(self.world, self.pools)
        parts = [
            self.account,
            self.images,
            self.secrets,
            self.files,
            functions,
            Apps(self.world, self.lifecycle),
            Calls(self.world, functions, self.pools),
            Containers(self.world, self.pools),
            VolumeRpcs(self.world, self.volumes),
            Dicts(self.world),
            self.sandboxes,
        ]
        self.dispatcher = Dispatcher(self.world, self.account, parts)
        router = SandboxRouter(self.sandboxes)
        self.router_dispatcher = Dispatcher(self.world, router, [router])

    async def serve(self) -> None:
        """Run until SIGTERM or SIGINT."""
        # It logs each caller that hangs up; errors of the plane are in the event log.
        logging.getLogger("grpclib").setLevel(logging.CRITICAL)
        stop = asyncio.Event()
        for kind in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().add_signal_handler(kind, stop.set)
        grpc = grpclib.server.Server(
            [
                self.dispatcher.service(ModalClientBase),
                self.router_dispatcher.service(TaskCommandRouterBase),
            ],
            status_details_codec=custom_detail_codec,
        )
        grpc_port, http_port = _free_port(), _free_port()
        await grpc.start(HOST, grpc_port)
        delay_s = self.world.options.line_delay_s
        line = Line(grpc_port, self.world.options.port, delay_s)
        files_line = Line(http_port, delay_s=delay_s)
        runner = await self._serve_http(http_port, [line, files_line])
        await line.open()
        await files_line.open()
        self.launcher.url = _url(grpc_port)
        self.account.line = line
        self.account.addresses["container"] = Addresses(
            server_url=_url(grpc_port), files_url=_url(http_port)
        )
        self.account.addresses["client"] = Addresses(
            server_url=_url(line.port), files_url=_url(files_line.port)
        )
        self.world.start(self.lifecycle.run())
        self.world.start(self.volumes.commit_in_background())
        self._announce(_url(line.port), f"{_url(http_port)}/admin")
        await stop.wait()
        await self._end_containers()
        await line.close()
        await files_line.close()
        grpc.close()
        await runner.cleanup()
        self.world.cancel_background()
        self.world.events.close()

    async def _serve_http(self, port: int, lines: list[Line]) -> aiohttp.web.AppRunner:
        admin = Admin(self.world, self.dispatcher, self.pools, self.images, self.volumes, lines)
        counting = self._counting(lines[1])
        app = aiohttp.web.Application(client_max_size=MAX_UPLOAD, middlewares=[counting])
        app.add_routes([*self.files.routes(), *admin.routes()])
        runner = aiohttp.web.AppRunner(app, access_log=None)
        await runner.setup()
        await aiohttp.web.TCPSite(runner, HOST, port).start()
        return runner

    def _counting(self, files_line: Line) -> Middleware:
        @aiohttp.web.middleware
        async def count(
            request: aiohttp.web.Request, handler: Handler
        ) -> aiohttp.web.StreamResponse:
            if request.url.port == files_line.port:
                self.dispatcher.client_counts[f"HTTP {request.method}"] += 1
            return await handler(request)

        return count

    def _announce(self, url: str, admin_url: str) -> None:
        """Print and write down the variables that a client needs."""
        environment = {
            "MODAL_SERVER_URL": url,
            "MODAL_TOKEN_ID": TOKEN_ID,
            "MODAL_TOKEN_SECRET": TOKEN_SECRET,
            "MODAL_CONFIG_PATH": os.devnull,
            "MODAL_PLANE_ADMIN_URL": admin_url,
        }
        beside = self.world.state / f"{ENVIRONMENT_FILE}.tmp"
        beside.write_text(json.dumps(environment))
        beside.replace(self.world.state / ENVIRONMENT_FILE)
        exports = " ".join(f"{name}={value}" for name, value in environment.items())
        print(f"export {exports}", flush=True)  # noqa: T201

    async def _end_containers(self) -> None:
        self.sandboxes.end_all()
        for app in self.world.apps.values():
            self.lifecycle.stop_app(app)
        for _ in range(int(STOP_S / 0.05)):
            if not self.world.open_containers():
                return
            await asyncio.sleep(0.05)
        for container in self.world.open_containers():
            kill_everything(container.process, container.directory)


def run(options: Options) -> None:
    """Run a plane in this process until it is told to stop.

    Raises:
        OSError: Containers cannot be isolated as `options` ask for, or the state directory holds
            what another plane wrote.
    """
    if (options.state / "events.jsonl").exists():
        raise OSError(f"{options.state} holds another plane's state; name an empty directory")
    if options.with_parent:
        end_with_parent()
    options.state.mkdir(parents=True, exist_ok=True)
    if options.isolation == "namespaces":
        check_namespaces(options.state / "check")
    asyncio.run(Plane(options).serve())


def _url(port: int) -> str:
    return f"http://{HOST}:{port}"


def _free_port() -> int:
    with socket.socket() as one:
        one.bind((HOST, 0))
        return int(one.getsockname()[1])
