"""The automations of a Prefect server that bring the runs of deployments back by themselves.

    Running, then silence -> Crashed -> Recovering, unless started too often -> AwaitingRetry
    AwaitingRetry, but another run of a deployment with CANCEL_NEW goes -> HeldUp -> AwaitingRetry

Silence is what is left of a run whose machine was lost together with its worker. Recovering is a
name of Crashed, and lasts a while: a process worker reports a death twice, the second time when it
has cleaned up, and would mark a new attempt that has begun by then as Crashed.

A server on SQLite shows an event to one trigger after the other, in a transaction each. A trigger
that reads before it writes fails at once while somebody else is writing. Every trigger then sees
the event again, after the fourth time none does, and the run's next events wait for a quarter of an
hour. A trigger that writes first waits for its turn instead: one without `after`, or with the event
in it. On the way from Pending to AwaitingRetry events reach only such triggers of ours. Automations
of others may still make the server show one twice, so how often a run was Running is not counted
here but read from the event.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import timedelta
from typing import Any
from uuid import UUID

from prefect.client.orchestration import SyncPrefectClient, get_client
from prefect.client.schemas.filters import FlowFilter, FlowFilterName
from prefect.client.schemas.objects import StateType
from prefect.client.schemas.responses import DeploymentResponse
from prefect.events.actions import ChangeFlowRunState
from prefect.events.schemas.automations import (
    AutomationCore,
    CompoundTrigger,
    EventTrigger,
    Posture,
)

from mortal_steps.errors import ServerError

FLOW = "grpo-train"
FLOWS = ("promote", FLOW)
"""Whose deployments' runs come back: all that they do may be done again."""
SILENT = "mortal: a silent run has crashed"
CRASHED = "mortal: a crashed run recovers"
RECOVERING = "mortal: a recovering run is scheduled again"
CANCELLED = "mortal: a run that comes back is held up by another one"
HELD_UP = "mortal: a run that was held up is scheduled again"
ALL = (SILENT, CRASHED, RECOVERING, CANCELLED, HELD_UP)
"""Names of the automations."""

HEARTBEAT_SETTING = "PREFECT_FLOWS_HEARTBEAT_FREQUENCY"
HEARTBEAT_DEFAULT_S = 180
"""Prefect's own, where a deployment sets none."""

MADE_FOR_ALL = f"`mortal automate` made this for the deployments of {' and '.join(FLOWS)}."


def _events(*names: str) -> set[str]:
    """Events of a flow run: the names of its states, and `heartbeat`."""
    return {f"prefect.flow-run.{name}" for name in names}


SIGNS_OF_LIFE = _events(
    *("Pending", "Submitting", "InfrastructurePending"),
    *("Running", "Retrying", "Rerunning", "heartbeat"),
)
NOT_EXPECTED_TO_LIVE = _events(
    *("Scheduled", "Late", "AwaitingConcurrencySlot", "Paused", "Suspended"),
    *("Completed", "Failed", "Cancelling", "Cancelled"),
)
SILENCE = "No sign of life any more."
RUN_COUNT = "prefect.run-count"
"""Label of a state's event: how often the flow run has been Running."""
MESSAGE = "prefect.state-message"
LIMIT_REACHED = "Deployment concurrency limit reached*"
"""With which Prefect cancels a run, where the deployment says CANCEL_NEW."""
PATIENCE = 15
"""Pauses between two tries of a run that is held up: another one may go for hours."""
MEMORY = timedelta(days=30)
"""How long the server remembers the crashes of a flow run."""

ONE_RUN: dict[str, Any] = {
    "match": {"prefect.resource.id": "prefect.flow-run.*"},
    "for_each": {"prefect.resource.id"},
}
ANY_DEPLOYED_RUN: dict[str, Any] = {
    **ONE_RUN,
    "match_related": [
        {"prefect.resource.role": "flow", "prefect.resource.name": list(FLOWS)},
        {"prefect.resource.role": "deployment"},
    ],
}


@dataclass(frozen=True, kw_only=True, slots=True)
class Recovery:
    """When a run counts as dead, and how often it comes back."""

    silence_s: float
    """Seconds without a heartbeat, or from being picked up to running, after which a flow run has
    crashed."""
    pause_s: float
    """Seconds between a crash and the new schedule; longer than a worker takes to clean up."""
    attempts: int
    """Starts of one flow run at most, the first one included. Those that die before they are
    Running are counted apart, anew after each that gets there."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Deployed:
    """A deployment of one of the flows."""

    name: str
    """`flow/deployment`."""
    id: UUID
    heartbeat_s: int
    """Seconds between two heartbeats of its runs."""


def automate(recovery: Recovery) -> Iterator[str]:
    """Make the automations, in place of those of an earlier call; yields a line for each fact.

    Raises `ServerError` if the server has no deployment of the flow.
    """
    with get_client(sync_client=True) as client:
        deployments = _deployments(client)
        watched = [each for each in deployments if each.heartbeat_s < recovery.silence_s]
        _remove(client)
        if watched:
            client.create_automation(_silent(watched, recovery))
            yield (
                f"made {SILENT!r}: {_names(watched)} after {recovery.silence_s:g} s without a "
                "heartbeat or a start"
            )
        client.create_automation(_crashed(recovery))
        client.create_automation(
            _scheduled_again(RECOVERING, "Recovering", recovery.pause_s, recovery)
        )
        client.create_automation(_cancelled(recovery))
        held_up_s = PATIENCE * recovery.pause_s
        client.create_automation(_scheduled_again(HELD_UP, "HeldUp", held_up_s, recovery))
        yield (
            f"made {CRASHED!r} and {RECOVERING!r}: {_names(deployments)}, "
            f"{recovery.attempts} starts of a flow run at most"
        )
        yield (
            f"made {CANCELLED!r} and {HELD_UP!r}: such a run is tried again every {held_up_s:g} s"
        )
        for deployment in deployments:
            if deployment not in watched:
                yield (
                    f"not watched for silence: {_names([deployment])} sends a heartbeat every "
                    f"{deployment.heartbeat_s} s; set {HEARTBEAT_SETTING} = 30 in the env of its "
                    "job variables, deploy it and run this again"
                )


def has_deployments() -> bool:
    """Whether there are deployments that `automate` can be about."""
    with get_client(sync_client=True) as client:
        try:
            return bool(_deployments(client))
        except ServerError:
            return False


def remove() -> Iterator[str]:
    """Remove the automations; yields a line for each that was there."""
    with get_client(sync_client=True) as client:
        for name in _remove(client):
            yield f"removed {name!r}"


def _remove(client: SyncPrefectClient) -> list[str]:
    found = [automation for name in ALL for automation in client.read_automations_by_name(name)]
    for automation in found:
        client.delete_automation(automation.id)
    return [automation.name for automation in found]


def _deployments(client: SyncPrefectClient) -> list[Deployed]:
    found = [
        Deployed(name=f"{flow}/{each.name}", id=each.id, heartbeat_s=_heartbeat_s(each))
        for flow in FLOWS
        for each in sorted(deployments_of(client, flow), key=lambda each: each.name)
    ]
    if not found:
        raise ServerError(
            f"the server at {client.api_url} has no deployment of {' or '.join(FLOWS)}; only a "
            "deployment's runs can be scheduled again. Make one with `prefect --no-prompt deploy "
            "--all --prefect-file deployments/prefect.yaml`, and name the server in PREFECT_API_URL"
        )
    return found


def deployments_of(client: SyncPrefectClient, flow: str) -> list[DeploymentResponse]:
    """The deployments of one of the `FLOWS`."""
    return client.read_deployments(flow_filter=FlowFilter(name=FlowFilterName(any_=[flow])))


def _heartbeat_s(deployment: DeploymentResponse) -> int:
    environment = (deployment.job_variables or {}).get("env") or {}
    return int(environment.get(HEARTBEAT_SETTING, HEARTBEAT_DEFAULT_S))


def _names(deployments: list[Deployed]) -> str:
    return ", ".join(deployment.name for deployment in deployments)


def _silent(deployments: list[Deployed], recovery: Recovery) -> AutomationCore:
    """After a sign of life nothing more: Crashed."""
    watched: dict[str, Any] = {
        **ONE_RUN,
        "match_related": {
            "prefect.resource.role": "deployment",
            "prefect.resource.id": [f"prefect.deployment.{each.id}" for each in deployments],
        },
    }
    return AutomationCore(
        name=SILENT,
        description=f"`mortal automate` made this for {_names(deployments)}.",
        trigger=_nothing_after(SIGNS_OF_LIFE, recovery.silence_s, watched),
        # Not forced: a run that has ended or crashed stays as it is.
        actions=[ChangeFlowRunState(state=StateType.CRASHED, message=SILENCE)],
    )


def _crashed(recovery: Recovery) -> AutomationCore:
    """Crashed, and Running fewer times than it may be: Recovering.

    So that a run that never gets to Running ends too, each trigger fires once for a flow run and
    a number of starts: on the first crash, on the second, ... Silence is counted apart: a run that
    has crashed may fall silent once more, waiting for a worker.
    """
    runs = {**ANY_DEPLOYED_RUN, "for_each": {*ONE_RUN["for_each"], RUN_COUNT}}
    starts = {**ONE_RUN["match"], RUN_COUNT: [str(count) for count in range(recovery.attempts)]}
    crashes = [
        EventTrigger(
            **{**runs, "match": {**starts, MESSAGE: message}},
            expect=_events("Crashed"),
            posture=Posture.Reactive,
            threshold=count,
            within=MEMORY,
        )
        for message in (SILENCE, f"!{SILENCE}")
        for count in range(1, recovery.attempts)
    ]
    return AutomationCore(
        name=CRASHED,
        description=MADE_FOR_ALL,
        trigger=CompoundTrigger(triggers=crashes, require="any", within=None),
        # Forced, for Prefect leaves no Crashed state for another one.
        actions=[
            ChangeFlowRunState(
                state=StateType.CRASHED,
                name="Recovering",
                message=f"Scheduled again in {recovery.pause_s:g} s.",
                force=True,
            )
        ],
    )


def _cancelled(recovery: Recovery) -> AutomationCore:
    """Cancelled because another run of its deployment goes, but begun before: HeldUp.

    A run that a schedule makes meanwhile has not begun, and stays Cancelled.
    """
    begun = {RUN_COUNT: [str(count) for count in range(1, recovery.attempts)]}
    return AutomationCore(
        name=CANCELLED,
        description=MADE_FOR_ALL,
        trigger=EventTrigger(
            **{**ANY_DEPLOYED_RUN, "match": {**ONE_RUN["match"], **begun, MESSAGE: LIMIT_REACHED}},
            expect=_events("Cancelled"),
            posture=Posture.Reactive,
            threshold=1,
            within=timedelta(0),
        ),
        actions=[
            ChangeFlowRunState(
                state=StateType.CRASHED,
                name="HeldUp",
                message="Another run of the deployment goes; this one comes back after it.",
                force=True,
            )
        ],
    )


def _scheduled_again(name: str, state: str, pause_s: float, recovery: Recovery) -> AutomationCore:
    """After this state nothing more, such as a Retry by hand: AwaitingRetry."""
    return AutomationCore(
        name=name,
        description=MADE_FOR_ALL,
        trigger=_nothing_after(_events(state), pause_s, ANY_DEPLOYED_RUN),
        actions=[
            ChangeFlowRunState(
                state=StateType.SCHEDULED,
                name="AwaitingRetry",
                message=f"Crashed; started {recovery.attempts} times at most.",
            )
        ],
    )


def _nothing_after(events: set[str], seconds: float, runs: dict[str, Any]) -> EventTrigger:
    """Fires for a run of which nothing is heard for `seconds` after the last of `events`.

    It does not listen for Crashed and AwaitingRetry; see the top of this file.
    """
    return EventTrigger(
        **runs,
        after=events,
        expect=events | SIGNS_OF_LIFE | NOT_EXPECTED_TO_LIVE,
        posture=Posture.Proactive,
        threshold=1,
        within=timedelta(seconds=seconds),
    )
