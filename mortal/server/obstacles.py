"""What keeps the flow runs of a deployment from beginning: somebody has paused their pool or queue,
a limit is 0, or no process looks for them.

Prefect itself leaves such a run Late, and says nothing. The mappings are what its API answers.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from prefect.client.orchestration import SyncPrefectClient

READY = "READY"
"""Prefect's word for a deployment whose runs somebody has asked for within the last minute."""


def obstacle(
    deployment: Mapping[str, Any], pool: Mapping[str, Any] | None, queue: Mapping[str, Any] | None
) -> str | None:
    """The obstacle and its remedy, in a sentence; None if there is none."""
    limit = deployment.get("global_concurrency_limit") or {}
    if limit.get("limit") == 0:
        return "the deployment's concurrency limit is 0; give it another one, and deploy"
    if pool is None:
        return None
    name = pool["name"]
    if pool["is_paused"]:
        return f"the work pool {name} is paused; `prefect work-pool resume {name}`"
    if pool["concurrency_limit"] == 0:
        clear = f"prefect work-pool clear-concurrency-limit {name}"
        return f"the work pool {name} has the concurrency limit 0; `{clear}`"
    if queue is None:
        return None
    named = f"{queue['name']} --pool {name}"
    if queue["is_paused"]:
        return f"the work queue {queue['name']} is paused; `prefect work-queue resume {named}`"
    if queue["concurrency_limit"] == 0:
        clear = f"prefect work-queue clear-concurrency-limit {named}"
        return f"the work queue {queue['name']} has the concurrency limit 0; `{clear}`"
    return None


def why_late(client: SyncPrefectClient, deployment_id: str) -> str | None:
    """Why a flow run of this deployment has not begun, although it is due; None if that is not
    known."""
    named = {"id": deployment_id}
    deployment = client.request("GET", "/deployments/{id}", path_params=named).json()
    found = find_obstacle(client, deployment)
    if found is not None or deployment["status"] == READY:
        return found
    pool = deployment["work_pool_name"]
    if pool is None:
        return "no `mortal schedule` runs that serves its deployment"
    return f"no worker is online for the pool {pool}; `prefect worker start --pool {pool}`"


def find_obstacle(client: SyncPrefectClient, deployment: Mapping[str, Any]) -> str | None:
    """Ask the server for the deployment's work pool and queue; see `obstacle`."""
    name, lane = deployment["work_pool_name"], deployment["work_queue_name"]
    if name is None:
        return obstacle(deployment, None, None)
    pool = client.request("GET", "/work_pools/{name}", path_params={"name": name}).json()
    queue = None
    if lane is not None:
        queue = client.request(
            "GET",
            "/work_pools/{work_pool_name}/queues/{name}",
            path_params={"work_pool_name": name, "name": lane},
        ).json()
    return obstacle(deployment, pool, queue)
