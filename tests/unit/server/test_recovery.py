"""Which states of a flow run the automations take for what."""

from datetime import UTC, datetime
from uuid import uuid4

from prefect.server.events.schemas.automations import Automation
from prefect.server.events.schemas.events import ReceivedEvent

from mortal.server.process import SERVER_SETTINGS
from mortal.server.recovery import (
    MEMORY,
    SILENT,
    Deployed,
    Recovery,
    definitions,
)

RECOVERY = Recovery(silence_s=90, pause_s=20, attempts=5)
NIGHTLY = Deployed(name="grpo-train/nightly", id=uuid4(), heartbeat_s=30)


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


def test_nothing_on_the_way_back_ends_the_watch_for_silence_alone():
    """A trigger that only expects an event loses it while the database is busy."""
    trigger = automation(SILENT).trigger
    for state in ("Crashed", "Recovering", "AwaitingRetry"):
        assert not trigger.covers(event(state, run_count=1, message=""))


def test_the_deployments_that_are_watched_are_named_in_the_automation():
    watched = definitions([NIGHTLY], RECOVERY)[0].trigger.match_related
    assert watched["prefect.resource.id"] == [f"prefect.deployment.{NIGHTLY.id}"]


def test_a_server_remembers_silence_as_long_as_crashes():
    assert SERVER_SETTINGS["PREFECT_SERVER_EVENTS_EXPIRED_BUCKET_BUFFER"] == f"P{MEMORY.days}D"
