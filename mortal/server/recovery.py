"""The triggers and actions of the automations that restart the crashed runs of deployments.

    Running, then silence -> Crashed -> Recovering, unless started too often -> AwaitingRetry

Silence is the only sign of a run whose machine was lost together with its worker. Recovering is a
name of the state Crashed, and lasts a while. The reason is that a process worker reports a death
twice, the second time after it has cleaned up: if a new attempt had begun by then, the second
report would mark that attempt as Crashed.

A server on SQLite passes an event to one trigger after another, each in a transaction of its own. A
trigger that reads before it writes fails at once if somebody else is writing. Every trigger then
receives the event again; after four attempts none does, and the run's next events wait for fifteen
minutes. A trigger that writes first waits for its turn instead. Such a trigger has no `after`, or
has the event in it. On the way from Pending to AwaitingRetry, events reach only such triggers of
ours. Because automations of other people may still make the server pass on an event twice, the
number of times that a run was Running is not counted here but read from the event.
"""

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

FLOWS = ("promote", "grpo-train", "recipe")
"""The flows whose runs are restarted. Everything that these flows do may safely be repeated."""
SILENT = "mortal: a silent run has crashed"
CRASHED = "mortal: a crashed run recovers"
RECOVERING = "mortal: a recovering run is scheduled again"
ALL = (SILENT, CRASHED, RECOVERING)
"""Names of the automations."""

HEARTBEAT_SETTING = "PREFECT_FLOWS_HEARTBEAT_FREQUENCY"
HEARTBEAT_DEFAULT_S = 180
"""Prefect's default, for deployments that do not set the heartbeat."""

MADE_FOR_ALL = f"`mortal automate` made this for the deployments of {', '.join(FLOWS)}."


def events(*names: str) -> set[str]:
    """Return the events of a flow run for these names: names of states, or `heartbeat`."""
    return {f"prefect.flow-run.{name}" for name in names}


SIGNS_OF_LIFE = events(
    *("Pending", "Submitting", "InfrastructurePending"),
    *("Running", "Retrying", "Rerunning", "heartbeat"),
)
NOT_EXPECTED_TO_LIVE = events(
    *("Scheduled", "Late", "AwaitingConcurrencySlot", "Paused", "Suspended"),
    *("Completed", "Failed", "Cancelling", "Cancelled"),
)
"""States in which a run sends no heartbeats."""
SILENCE = "No sign of life any more."
RUN_COUNT = "prefect.run-count"
"""The label of a state's event that says how often the flow run has been Running."""
MESSAGE = "prefect.state-message"
SCHEDULED_AGAIN = "Crashed; started {attempts} times at most."
MEMORY = timedelta(days=30)
"""For how long the server remembers the crashes of a flow run."""

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
    """When a run counts as crashed, and how often it is restarted."""

    silence_s: float
    """Seconds without a heartbeat after which a flow run counts as crashed. The same limit applies
    to the time between being picked up by a worker and Running."""
    pause_s: float
    """Seconds between a crash and the restart; a worker must clean up in fewer."""
    attempts: int
    """How often one flow run is started at most, the first start included. Starts that end before
    the run is Running are counted separately, and from zero after each start that gets there."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Deployed:
    """A deployment of one of the flows."""

    name: str
    """`flow/deployment`."""
    id: UUID
    heartbeat_s: int
    """Seconds between two heartbeats of its runs."""


def definitions(watched: list[Deployed], recovery: Recovery) -> list[AutomationCore]:
    """All automations. The one for silence is included only if there is a deployment to watch."""
    return [
        *([_silent(watched, recovery)] if watched else []),
        _crashed(recovery),
        _scheduled_again(recovery),
    ]


def names(deployments: Sequence[Deployed]) -> str:
    return ", ".join(deployment.name for deployment in deployments)


def _silent(deployments: list[Deployed], recovery: Recovery) -> AutomationCore:
    """Set Crashed if nothing follows a sign of life."""
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
        trigger=nothing_after(SIGNS_OF_LIFE, NOT_EXPECTED_TO_LIVE, recovery.silence_s, watched),
        # Not forced: a run that has ended or crashed stays as it is.
        actions=[ChangeFlowRunState(state=StateType.CRASHED, message=SILENCE)],
    )


def _crashed(recovery: Recovery) -> AutomationCore:
    """Set Recovering if a run has crashed and has been Running less often than is allowed.

    A run that never reaches Running must end, too. So there is a trigger for the first crash, for
    the second, and so on, and each fires once for a flow run and a number of starts. Silence is
    counted separately, because a run that has crashed may fall silent once more while it waits for
    a worker.
    """
    runs = {**ANY_DEPLOYED_RUN, "for_each": {*ONE_RUN["for_each"], RUN_COUNT}}
    starts = {**ONE_RUN["match"], RUN_COUNT: [str(count) for count in range(recovery.attempts)]}
    crashes = [
        EventTrigger(
            **{**runs, "match": {**starts, MESSAGE: message}},
            expect=events("Crashed"),
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
        # Forced, because Prefect does not replace the state Crashed otherwise.
        actions=[
            ChangeFlowRunState(
                state=StateType.CRASHED,
                name="Recovering",
                message=f"Scheduled again in {recovery.pause_s:g} s.",
                force=True,
            )
        ],
    )


def _scheduled_again(recovery: Recovery) -> AutomationCore:
    """Set AwaitingRetry if nothing follows Recovering during the pause."""
    return AutomationCore(
        name=RECOVERING,
        description=MADE_FOR_ALL,
        trigger=nothing_after(
            events("Recovering"), NOT_EXPECTED_TO_LIVE, recovery.pause_s, ANY_DEPLOYED_RUN
        ),
        actions=[
            ChangeFlowRunState(
                state=StateType.SCHEDULED,
                name="AwaitingRetry",
                message=SCHEDULED_AGAIN.format(attempts=recovery.attempts),
            )
        ],
    )


def nothing_after(
    last: set[str], others: set[str], seconds: float, runs: dict[str, Any]
) -> EventTrigger:
    """Return a trigger that fires `seconds` after one of the events `last` if none of them, of
    `others` or a sign of life follows. It ignores Crashed and AwaitingRetry (see the module)."""
    return EventTrigger(
        **runs,
        after=last,
        expect=last | SIGNS_OF_LIFE | others,
        posture=Posture.Proactive,
        threshold=1,
        within=timedelta(seconds=seconds),
    )
