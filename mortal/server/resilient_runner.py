"""The runner of `mortal schedule`: it survives its server's absence and a lost database.

Prefect's own runner ends for good once the server has not answered for some minutes. If the server
has lost the deployments with its database, Prefect's runner waits for their runs for ever.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any
from uuid import UUID

import httpx
from prefect.client.orchestration import PrefectClient, get_client
from prefect.client.schemas.actions import DeploymentUpdate
from prefect.deployments.runner import RunnerDeployment
from prefect.exceptions import ObjectNotFound
from prefect.runner import Runner
from prefect.settings import PREFECT_CLIENT_MAX_RETRIES, temporary_settings

from mortal.server.recovery import HEARTBEAT_SETTING
from mortal_tasks.prefect_patches import poll_by

HEARTBEAT_S = 30
"""Seconds between two heartbeats of a flow run."""
PAUSED_WITHIN_S = 10.0
"""Somebody waits for the process to end."""


def named(deployment: RunnerDeployment) -> str:
    """Return how Prefect's commands name a deployment."""
    return f"{deployment.flow_name}/{deployment.name}"


class ResilientRunner(Runner):
    """Serves deployments, one run at a time, and makes them again if the server has lost them."""

    def __init__(
        self,
        deployments: Sequence[RunnerDeployment],
        say: Callable[[str], None],
        query_seconds: float | None = None,
    ) -> None:
        # `pause_on_shutdown` would raise if the server is away; see `pause`.
        super().__init__(
            name="mortal",
            limit=1,
            heartbeat_seconds=HEARTBEAT_S,
            query_seconds=query_seconds,
            pause_on_shutdown=False,
        )
        self._deployments = deployments
        self._say = say
        self._served: dict[UUID, RunnerDeployment] = {}
        self._away = False

    async def deploy(self) -> set[UUID]:
        """Make the deployments at the server; their ids."""
        async with get_client() as client:
            for deployment in self._deployments:
                await self._make(client, deployment)
        return set(self._served)

    async def __aenter__(self) -> ResilientRunner:
        await super().__aenter__()
        poll_by(self, self._look)
        return self

    async def pause(self) -> None:
        """Pause the schedules, as far as the server lets us."""
        with temporary_settings({PREFECT_CLIENT_MAX_RETRIES: 0}):
            async with get_client(httpx_settings={"timeout": PAUSED_WITHIN_S}) as client:
                for deployment_id, deployment in self._served.items():
                    try:
                        await client.pause_deployment(deployment_id)
                    except ObjectNotFound:
                        continue
                    except httpx.HTTPError as error:
                        self._say(
                            f"the schedule of {named(deployment)} could not be paused "
                            f"({str(error) or type(error).__name__}); its runs wait for the next "
                            "`mortal schedule`"
                        )
                        return

    async def _look(self, begin_what_is_due: Callable[[], Awaitable[Any]]) -> None:
        """Begin the runs that are due, unless the server is away."""
        try:
            await self._make_again()
            await begin_what_is_due()
        except httpx.HTTPError as error:
            if isinstance(error, httpx.HTTPStatusError) and error.response.status_code < 500:
                raise
            if not self._away:
                self._say(
                    f"the Prefect server at {self._client.api_url} does not answer "
                    f"({str(error) or type(error).__name__}); no run begins until it does"
                )
            self._away = True
            return
        if self._away:
            self._say(f"the Prefect server at {self._client.api_url} answers again")
        self._away = False

    async def _make_again(self) -> None:
        """Make the deployments again that the server does not know any more."""
        for deployment_id, deployment in list(self._served.items()):
            try:
                await self._client.read_deployment(deployment_id)
            except ObjectNotFound:
                await self._make(self._client, deployment)
                del self._served[deployment_id]
                self._say(
                    f"the server did not know {named(deployment)} any more: somebody has deleted "
                    "it, or the server's database. It was made again; if you use `mortal "
                    "automate`, call it again, too"
                )

    async def _make(self, client: PrefectClient, deployment: RunnerDeployment) -> None:
        made = await self.aadd_deployment(deployment)
        self._served[made] = deployment
        # `mortal automate` looks for the heartbeat there.
        update = DeploymentUpdate(job_variables={"env": {HEARTBEAT_SETTING: str(HEARTBEAT_S)}})
        await client.update_deployment(made, update)
