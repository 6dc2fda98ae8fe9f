"""Which states of a flow run the automations take for what."""

from datetime import UTC, datetime
from uuid import uuid4

import pytest
from prefect.server.events.schemas.automations import Automation
from prefect.server.events.schemas.events import ReceivedEvent

from mortal.server.process import SERVER_SETTINGS
from mortal.server.recovery import (
    CANCELLED,
    MEMORY,
    SILENT,
    Deployed,
    Recovery,
    definitions,
    ids_watched,
)

RECOVERY = Recovery(silence_s=90, pause_s=20, attempts=5)
NIGHTLY = Deployed(name="grpo-train/nightly", id=uuid4(), heartbeat_s=30)
LIMIT = "Deployment concurrency limit reached."
LOST = (
    "Deployment concurrency slot lost during provisioning - no slots available to continue "
    "execution"
)


def automation(name):
    """As the server has it."""
    (made,) = (each for each in definitions([NIGHTLY], RECOVERY) if each.name == name)
    return Automation.model_validate({**made.model_dump(mode="json"), "id": str(uuid4())})


def event(state, *, run_count, message):
    now = datetime.now(UTC)
    return ReceivedEvent(
        occurred=now,
        received=now,
        event=f"prefect.flow-run.{state}",
        id=uuid4(),
        resource={
            "prefect.resource.id": f"prefect.flow-run.{uuid4()}",
            "prefect.run-count": str(run_count),
            "prefect.state-message": message,
        },
        related=[
            {
                "prefect.resource.id": "prefect.flow.1",
                "prefect.resource.role": "flow",
                "prefect.resource.name": "grpo-train",
            },
            {
                "prefect.resource.id": f"prefect.deployment.{NIGHTLY.id}",
                "prefect.resource.role": "deployment",
            },
        ],
    )


@pytest.mark.parametrize(
    ("run_count", "message", "comes_back"),
    [(1, LIMIT, True), (1, LOST, True), (0, LOST, True), (0, LIMIT, False), (1, "by me", False)],
)
def test_a_run_on_its_way_is_told_from_one_that_was_to_begin(run_count, message, comes_back):
    at_once, after = [], []
    for trigger in automation(CANCELLED).trigger.triggers:
        (after if trigger.after else at_once).append(trigger)
    cancelled = event("Cancelled", run_count=run_count, message=message)
    assert any(trigger.covers(cancelled) for trigger in at_once) is comes_back


def test_a_run_that_died_before_it_ran_is_held_up_too():
    (trigger,) = (each for each in automation(CANCELLED).trigger.triggers if each.after)
    again = event("AwaitingRetry", run_count=0, message="Crashed; started 5 times at most.")
    assert trigger.covers(again) and trigger.starts_after(again.event)
    cancelled = event("Cancelled", run_count=0, message=LIMIT)
    assert trigger.covers(cancelled) and trigger.expects(cancelled.event)
    assert not trigger.covers(event("AwaitingRetry", run_count=0, message="by hand"))


def test_nothing_on_the_way_back_ends_the_watch_for_silence_alone():
    """A trigger that only expects an event loses it while the database is busy."""
    trigger = automation(SILENT).trigger
    for state in ("Crashed", "Recovering", "Cancelled", "HeldUp", "AwaitingRetry"):
        assert not trigger.covers(event(state, run_count=1, message=""))
    assert RECOVERY.held_up_s > RECOVERY.silence_s, "a try is never taken for silence"


def test_the_deployments_that_are_watched_are_known_from_the_automation():
    silent = definitions([NIGHTLY], RECOVERY)[0]
    assert ids_watched(silent) == {str(NIGHTLY.id)}


def test_a_server_remembers_silence_as_long_as_crashes():
    assert SERVER_SETTINGS["PREFECT_SERVER_EVENTS_EXPIRED_BUCKET_BUFFER"] == f"P{MEMORY.days}D"
