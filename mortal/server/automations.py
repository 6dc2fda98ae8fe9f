"""Makes the automations with which a Prefect server restarts the crashed runs of deployments.

When an automation is deleted, Prefect also forgets the events that it has received, such as the
crash of a run that waits for its pause to end. An automation that exists already is therefore kept.
"""

from collections.abc import Iterator

from prefect.client.orchestration import SyncPrefectClient, get_client
from prefect.client.schemas.filters import FlowFilter, FlowFilterName
from prefect.client.schemas.responses import DeploymentResponse

from mortal.server.api import delete_automations, make_automation
from mortal.server.notifications import DOWN, PREFIX
from mortal.server.recovery import (
    ALL,
    FLOWS,
    HEARTBEAT_DEFAULT_S,
    HEARTBEAT_SETTING,
    SILENT,
    Deployed,
    Recovery,
    definitions,
    names,
)
from mortal_steps.errors import ServerError


def automate(recovery: Recovery) -> Iterator[str]:
    """Make the automations in place of earlier ones; yields lines that say what was done. Raises
    `ServerError` if the server has no deployment of one of the `FLOWS`."""
    with get_client(sync_client=True) as client:
        deployments = deployed(client)
        if not deployments:
            raise _no_deployments(client)
        watched = [each for each in deployments if each.heartbeat_s < recovery.silence_s]
        wanted = definitions(watched, recovery)
        made = [each.name for each in wanted if make_automation(client, each)]
        if not watched:
            delete_automations(client, (SILENT,))
    yield from _facts(deployments, watched, recovery, made)


def _facts(
    deployments: list[Deployed], watched: list[Deployed], recovery: Recovery, made: list[str]
) -> Iterator[str]:
    yield f"made: {', '.join(made)}" if made else "all automations are there, and stay as they are"
    yield f"{names(deployments)} come back after a crash: {recovery.attempts} starts at most"
    if watched:
        silence = f"{recovery.silence_s:g} s without a heartbeat or a start"
        yield f"{names(watched)} count as crashed after {silence}"
    for deployment in deployments:
        if deployment not in watched:
            yield (
                f"not watched for silence: {deployment.name} sends a heartbeat every "
                f"{deployment.heartbeat_s} s; set {HEARTBEAT_SETTING} = 30 in the env of its "
                "job variables, deploy it and run this again"
            )


def has_deployments() -> bool:
    with get_client(sync_client=True) as client:
        return bool(deployed(client))


def remove() -> Iterator[str]:
    """Remove all automations that `mortal automate` makes; yields a line for each."""
    with get_client(sync_client=True) as client:
        for name in delete_automations(client, (*ALL, PREFIX, DOWN)):
            yield f"removed {name!r}"


def deployed(client: SyncPrefectClient) -> list[Deployed]:
    """Return the deployments of the `FLOWS`, flow by flow, sorted by name."""
    return [
        Deployed(name=f"{flow}/{each.name}", id=each.id, heartbeat_s=_heartbeat_s(each))
        for flow in FLOWS
        for each in sorted(deployments_of(client, flow), key=lambda each: each.name)
    ]


def deployments_of(client: SyncPrefectClient, flow: str) -> list[DeploymentResponse]:
    return client.read_deployments(flow_filter=FlowFilter(name=FlowFilterName(any_=[flow])))


def _heartbeat_s(deployment: DeploymentResponse) -> int:
    environment = (deployment.job_variables or {}).get("env") or {}
    return int(environment.get(HEARTBEAT_SETTING, HEARTBEAT_DEFAULT_S))


def _no_deployments(client: SyncPrefectClient) -> ServerError:
    return ServerError(
        f"the server at {client.api_url} has no deployment of {' or '.join(FLOWS)}; only a "
        "deployment's runs can be scheduled again. Make one with `prefect --no-prompt deploy "
        "--all --prefect-file deployments/prefect.yaml`, and name the server in PREFECT_API_URL"
    )
