"""Starting the process of a container of a Function."""

from __future__ import annotations

import asyncio
import os
from asyncio.subprocess import Process
from collections.abc import Mapping
from pathlib import Path

from modal_proto import api_pb2 as pb

from .client_packages import run_entrypoint
from .handles import describe_app
from .images import Images
from .isolation import Bind, Launch, start_process
from .processes import DIRECTORY_VARIABLE
from .secrets import Secrets
from .types import Container, World
from .volumes import Volumes

CONTAINER_HEADER = "x-plane-container"
"""What tells the plane which container an RPC comes from."""
ARGUMENTS_FILE = "args.bin"
"""In a container's directory: what its entrypoint reads to learn what it runs."""
HOSTS = "127.0.0.1 localhost\n::1 localhost i6pn.modal.local\n"
"""/etc/hosts of a container in a cluster: its client asks for the second name's address."""
PASSED_ON = ("PATH", "LANG", "LC_ALL", "TZ", "LD_LIBRARY_PATH", "SSL_CERT_FILE")
"""Variables of the plane that containers get too."""


class Launcher:
    """Starts containers; `url` is set once the plane listens."""

    def __init__(self, world: World, images: Images, volumes: Volumes, secrets: Secrets) -> None:
        self.world = world
        self.images = images
        self.volumes = volumes
        self.secrets = secrets
        self.url = ""

    def common_environment(self) -> dict[str, str]:
        """What every container and sandbox gets."""
        passed_on = {name: os.environ[name] for name in PASSED_ON if name in os.environ}
        return {**passed_on, **dict(self.world.options.environment), "HOME": "/root"}

    async def start(self, container: Container) -> Process:
        """Start the container's process.

        Raises:
            OSError: It could not be started.
        """
        function = container.function
        definition = function.definition
        container.directory.mkdir(parents=True)
        python = self.images.interpreter(definition.image_id, self.world.options.stand_ins)
        container.python = str(python)
        arguments = self._arguments(container).SerializeToString()
        (container.directory / ARGUMENTS_FILE).write_bytes(arguments)
        files = container.directory / "files"
        self.images.lay_out(definition.image_id, definition.mount_ids, files)
        binds = bind_files(files)
        if container.cluster:
            hosts = container.directory / "hosts"
            hosts.write_text(HOSTS)
            binds.append(Bind(source=str(hosts), target="/etc/hosts"))
        binds += self.volumes.mount(
            definition.volume_mounts, container.directory / "volumes", container.volumes
        )
        settings = self.images.settings(definition.image_id)
        return await start_process(
            Launch(
                directory=container.directory,
                arguments=run_entrypoint(python, self.world.state / "client"),
                environment={
                    **self.common_environment(),
                    **settings.environment,
                    **self.secrets.environment(definition.secret_ids),
                    **self._modal_environment(container),
                },
                workdir=settings.workdir,
                binds=binds,
                hide=[str(path) for path in self.world.options.hide],
            ),
            self.world.options.isolation,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
        )

    def _arguments(self, container: Container) -> pb.ContainerArguments:
        function = container.function
        app = self.world.apps[function.app_id]
        deployment = None
        if function.pinned_version:
            deployment = app.deployments[function.pinned_version - 1]
        needed = [one.object_id for one in function.definition.object_dependencies]
        return pb.ContainerArguments(
            task_id=container.id,
            function_id=function.id,
            app_id=app.id,
            function_def=function.definition,
            serialized_params=function.params,
            environment_name=app.environment,
            app_layout=describe_app(self.world, app, deployment, needed),
        )

    def _modal_environment(self, container: Container) -> Mapping[str, str]:
        function = container.function
        return {
            "MODAL_SERVER_URL": self.url,
            "MODAL_IS_REMOTE": "1",
            "MODAL_TASK_ID": container.id,
            "MODAL_IMAGE_ID": function.definition.image_id,
            "MODAL_ENVIRONMENT": self.world.apps[function.app_id].environment,
            "MODAL_CLOUD_PROVIDER": "CLOUD_PROVIDER_LOCAL",
            "MODAL_REGION": "local",
            "MODAL_OVERRIDE_HEADERS": f"{CONTAINER_HEADER}:{container.id}",
            "MODAL_CONTAINER_ARGUMENTS_PATH": str(container.directory / ARGUMENTS_FILE),
            DIRECTORY_VARIABLE: str(container.directory),
            "PLANE_GPU": function.gpu,
            "PYTHONPATH": "/root",
            "PYTHONUNBUFFERED": "1",
        }


def bind_files(root: Path) -> list[Bind]:
    """Binds that show the files below `root` at their places, beside what the machine has there.

    Everything in `/` and `/root` is bound by itself; deeper directories are bound as a whole.
    """
    binds = []
    for entry in sorted(root.iterdir()):
        if entry.name == "root" and entry.is_dir():
            binds += [
                Bind(source=str(one), target=f"/root/{one.name}") for one in sorted(entry.iterdir())
            ]
        else:
            binds.append(Bind(source=str(entry), target=f"/{entry.name}"))
    return binds
