"""What brings the runs of deployments back: the automations' triggers and actions.

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

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any
from uuid import UUID

from prefect.client.schemas.objects import StateType
from prefect.events.actions import ChangeFlowRunState
from prefect.events.schemas.automations import (
    AutomationCore,
    CompoundTrigger,
    EventTrigger,
    Posture,
)
from prefect.events.schemas.events import ResourceSpecification

from mortal_flows.lateness import LIMIT_REACHED

FLOWS = ("promote", "grpo-train")
"""Whose deployments' runs come back: all that they do may be done again."""
SILENT = "mortal: a silent run has crashed"
CRASHED = "mortal: a crashed run recovers"
RECOVERING = "mortal: a recovering run is scheduled again"
CANCELLED = "mortal: a run that comes back is held up by another one"
HELD_UP = "mortal: a run that was held up is scheduled again"
ALL = (SILENT, CRASHED, RECOVERING, CANCELLED, HELD_UP)
"""Names of the automations."""

COMING_BACK = ("Recovering", "HeldUp")
"""States of a run that comes back. Both are names of Crashed."""

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
    *("Completed", "Failed", "Cancelling"),
)
"""Without Cancelled, which is on the way from Pending to HeldUp."""
SILENCE = "No sign of life any more."
RUN_COUNT = "prefect.run-count"
"""Label of a state's event: how often the flow run has been Running."""
MESSAGE = "prefect.state-message"
PLACE_LOST = "Deployment concurrency slot lost during provisioning*"
"""With which Prefect cancels a run that had its place and was about to start, whatever the
deployment says: the server forgot the lease, or a slow start outlasted it."""
SCHEDULED_AGAIN = "Crashed; started {attempts} times at most."
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

    @property
    def held_up_s(self) -> float:
        """Seconds between two tries of a run that is held up.

        The watch for silence that such a try begins is over by then. It would take a run that
        waits for a worker for a silent one, and that is counted.
        """
        return self.silence_s + self.pause_s


@dataclass(frozen=True, kw_only=True, slots=True)
class Deployed:
    """A deployment of one of the flows."""

    name: str
    """`flow/deployment`."""
    id: UUID
    heartbeat_s: int
    """Seconds between two heartbeats of its runs."""


def definitions(watched: list[Deployed], recovery: Recovery) -> list[AutomationCore]:
    """All automations; that for silence only if there is a deployment to watch."""
    return [
        *([_silent(watched, recovery)] if watched else []),
        _crashed(recovery),
        _scheduled_again(RECOVERING, "Recovering", recovery.pause_s, recovery),
        _cancelled(recovery),
        _scheduled_again(HELD_UP, "HeldUp", recovery.held_up_s, recovery),
    ]


def ids_watched(silent: AutomationCore) -> set[str]:
    """Ids of the deployments that the automation `SILENT` is about."""
    assert isinstance(silent.trigger, EventTrigger)
    related = silent.trigger.match_related
    assert isinstance(related, ResourceSpecification)
    prefix = "prefect.deployment."
    return {each.removeprefix(prefix) for each in related["prefect.resource.id"]}


def names(deployments: Sequence[Deployed]) -> str:
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
        description=f"`mortal automate` made this for {names(deployments)}.",
        trigger=_nothing_after(SIGNS_OF_LIFE, NOT_EXPECTED_TO_LIVE, recovery.silence_s, watched),
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
    """Cancelled because another run of its deployment goes, but on its way back: HeldUp.

    A run that a schedule makes meanwhile has not begun, and stays Cancelled.
    """
    begun = [str(count) for count in range(1, recovery.attempts)]
    scheduled_again = SCHEDULED_AGAIN.format(attempts="*")
    return AutomationCore(
        name=CANCELLED,
        description=MADE_FOR_ALL,
        trigger=CompoundTrigger(
            triggers=[
                _refused({RUN_COUNT: begun, MESSAGE: [f"{LIMIT_REACHED}*", PLACE_LOST]}),
                _refused({RUN_COUNT: "0", MESSAGE: PLACE_LOST}),
                # It died before it was Running, and that it comes back is known by what came
                # before. This one reads before it writes, so few events may reach it.
                _refused(
                    {RUN_COUNT: "0", MESSAGE: [scheduled_again, f"{LIMIT_REACHED}*"]},
                    after=_events("AwaitingRetry"),
                    within=MEMORY,
                ),
            ],
            require="any",
            within=None,
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


def _refused(
    labels: dict[str, Any],
    after: frozenset[str] | set[str] = frozenset(),
    within: timedelta = timedelta(0),
) -> EventTrigger:
    """Fires when a run with these labels is Cancelled."""
    return EventTrigger(
        **{**ANY_DEPLOYED_RUN, "match": {**ONE_RUN["match"], **labels}},
        after=set(after),
        expect=_events("Cancelled"),
        posture=Posture.Reactive,
        threshold=1,
        within=within,
    )


def _scheduled_again(name: str, state: str, pause_s: float, recovery: Recovery) -> AutomationCore:
    """After this state nothing more, such as a Retry by hand: AwaitingRetry."""
    return AutomationCore(
        name=name,
        description=MADE_FOR_ALL,
        trigger=_nothing_after(
            _events(state), NOT_EXPECTED_TO_LIVE | _events("Cancelled"), pause_s, ANY_DEPLOYED_RUN
        ),
        actions=[
            ChangeFlowRunState(
                state=StateType.SCHEDULED,
                name="AwaitingRetry",
                message=SCHEDULED_AGAIN.format(attempts=recovery.attempts),
            )
        ],
    )


def _nothing_after(
    events: set[str], others: set[str], seconds: float, runs: dict[str, Any]
) -> EventTrigger:
    """Fires for a run of which nothing is heard for `seconds` after the last of `events`: neither
    these nor `others`, nor a sign of life.

    It does not listen for Crashed and AwaitingRetry; see the top of this file.
    """
    return EventTrigger(
        **runs,
        after=events,
        expect=events | SIGNS_OF_LIFE | others,
        posture=Posture.Proactive,
        threshold=1,
        within=timedelta(seconds=seconds),
    )
