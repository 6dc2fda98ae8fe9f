"""Makes the automations with which a Prefect server restarts the crashed runs of deployments.

When an automation is deleted, Prefect also forgets the events that it has received, such as the
crash of a run that waits for its pause to end. An automation that exists already is therefore kept,
and events are sent again to one that is made anew.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any
from uuid import uuid4

from prefect.client.orchestration import SyncPrefectClient, get_client
from prefect.client.schemas.filters import FlowFilter, FlowFilterName
from prefect.client.schemas.responses import DeploymentResponse
from prefect.events.schemas.automations import AutomationCore

from mortal.server.recovery import (
    ALL,
    CANCELLED,
    CRASHED,
    FLOWS,
    HEARTBEAT_DEFAULT_S,
    HEARTBEAT_SETTING,
    HELD_UP,
    RECOVERING,
    SILENT,
    Deployed,
    Recovery,
    definitions,
    names,
)
from mortal_steps.errors import ServerError

WAITS_FOR = {
    SILENT: {"type": {"any_": ["RUNNING", "PENDING"]}},
    RECOVERING: {"name": {"any_": ["Recovering"]}},
    HELD_UP: {"name": {"any_": ["HeldUp"]}},
}
"""Automation -> the states of flow runs for which it has received an event and is waiting."""
PAGE = 200
"""Number of flow runs that one request asks for."""


def automate(recovery: Recovery) -> Iterator[str]:
    """Make the automations, in place of those of an earlier call. Yields lines that say what was
    done.

    Raises `ServerError` if the server has no deployment of one of the `FLOWS`.
    """
    with get_client(sync_client=True) as client:
        deployments = deployed(client)
        if not deployments:
            raise _no_deployments(client)
        watched = [each for each in deployments if each.heartbeat_s < recovery.silence_s]
        wanted = definitions(watched, recovery)
        made = [each.name for each in wanted if _make(client, each)]
        if not watched:
            _remove(client, (SILENT,))
        told = sum(_tell_again(client, name) for name in made)
    yield from _facts(deployments, watched, recovery, made)
    if told:
        yield f"{told} flow runs are running or have crashed; they are watched from now on"


def _facts(
    deployments: list[Deployed], watched: list[Deployed], recovery: Recovery, made: list[str]
) -> Iterator[str]:
    def done(*automations: str) -> str:
        verb = "made" if any(name in made for name in automations) else "kept"
        return f"{verb} {' and '.join(repr(name) for name in automations)}"

    if watched:
        yield (
            f"{done(SILENT)}: {names(watched)} after {recovery.silence_s:g} s without a "
            "heartbeat or a start"
        )
    yield (
        f"{done(CRASHED, RECOVERING)}: {names(deployments)}, "
        f"{recovery.attempts} starts of a flow run at most"
    )
    yield f"{done(CANCELLED, HELD_UP)}: such a run is tried again every {recovery.held_up_s:g} s"
    for deployment in deployments:
        if deployment not in watched:
            yield (
                f"not watched for silence: {deployment.name} sends a heartbeat every "
                f"{deployment.heartbeat_s} s; set {HEARTBEAT_SETTING} = 30 in the env of its "
                "job variables, deploy it and run this again"
            )


def has_deployments() -> bool:
    """Whether the server has deployments that `automate` can watch."""
    with get_client(sync_client=True) as client:
        return bool(deployed(client))


def remove() -> Iterator[str]:
    """Remove the automations. Yields a line for each one that existed."""
    with get_client(sync_client=True) as client:
        for name in _remove(client, ALL):
            yield f"removed {name!r}"


def deployed(client: SyncPrefectClient) -> list[Deployed]:
    """The deployments of the `FLOWS`, flow by flow, sorted by name."""
    return [
        Deployed(name=f"{flow}/{each.name}", id=each.id, heartbeat_s=_heartbeat_s(each))
        for flow in FLOWS
        for each in sorted(deployments_of(client, flow), key=lambda each: each.name)
    ]


def deployments_of(client: SyncPrefectClient, flow: str) -> list[DeploymentResponse]:
    """The deployments of one of the `FLOWS`."""
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


def _make(client: SyncPrefectClient, wanted: AutomationCore) -> bool:
    """Make the automation unless it exists already. Returns whether it was made.

    Automations of the same name that differ are deleted afterwards, so that no event is missed in
    between.
    """
    there = client.read_automations_by_name(wanted.name)
    same = [each for each in there if AutomationCore.model_validate(dict(each)) == wanted]
    if not same:
        client.create_automation(wanted)
    for each in there:
        if each not in same[:1]:
            client.delete_automation(each.id)
    return not same


def _remove(client: SyncPrefectClient, which: tuple[str, ...]) -> list[str]:
    found = [automation for name in which for automation in client.read_automations_by_name(name)]
    for automation in found:
        client.delete_automation(automation.id)
    return [automation.name for automation in found]


def _tell_again(client: SyncPrefectClient, automation: str) -> int:
    """Send a new automation an event for each flow run that it has to wait for. Returns how many.

    Only events are sent. The state is not set again, because setting Running would count as another
    start.
    """
    if automation not in WAITS_FOR:
        return 0
    events = [
        _event(flow, each)
        for flow in FLOWS
        for each in _flow_runs(client, flow, WAITS_FOR[automation])
        if each["deployment_id"] is not None
    ]
    if events:
        client.request("POST", "/events", json=events)
    return len(events)


def _flow_runs(
    client: SyncPrefectClient, flow: str, state: dict[str, Any]
) -> Iterator[dict[str, Any]]:
    wanted = {
        "flows": {"name": {"any_": [flow]}},
        "flow_runs": {"state": state},
        "sort": "ID_DESC",
        "limit": PAGE,
    }
    for offset in itertools.count(0, PAGE):
        asked = {**wanted, "offset": offset}
        page = client.request("POST", "/flow_runs/filter", json=asked).json()
        yield from page
        if len(page) < PAGE:
            return


def _event(flow: str, flow_run: dict[str, Any]) -> dict[str, Any]:
    """An event for a flow run's state, with the fields that our triggers read. For a run that is
    alive it is a heartbeat."""
    alive = flow_run["state"]["type"] in ("RUNNING", "PENDING")
    return {
        "id": str(uuid4()),
        "occurred": datetime.now(UTC).isoformat(),
        "event": f"prefect.flow-run.{'heartbeat' if alive else flow_run['state']['name']}",
        "resource": {
            "prefect.resource.id": f"prefect.flow-run.{flow_run['id']}",
            "prefect.resource.name": flow_run["name"],
        },
        "related": [
            {
                "prefect.resource.role": "flow",
                "prefect.resource.id": f"prefect.flow.{flow_run['flow_id']}",
                "prefect.resource.name": flow,
            },
            {
                "prefect.resource.role": "deployment",
                "prefect.resource.id": f"prefect.deployment.{flow_run['deployment_id']}",
            },
        ],
    }
