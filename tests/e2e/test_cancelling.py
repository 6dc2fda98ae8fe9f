"""A run that is cancelled on the server, where no worker is there to tell its process, and one that
is deleted there."""

import asyncio
from uuid import UUID

import pytest
from prefect import flow, task
from prefect.client.orchestration import get_client
from prefect.client.schemas.filters import FlowFilter, FlowRunFilter
from prefect.client.schemas.objects import State, StateType
from prefect.client.schemas.responses import SetStateStatus
from prefect.events import emit_event
from prefect.exceptions import Abort, Pause
from prefect.flow_engine import run_flow_async
from prefect.runtime import flow_run
from prefect.settings import PREFECT_API_URL, temporary_settings
from prefect.states import Completed, Pending, Suspended

from mortal_flows.deployed import end_over_cancellation, ended_already, stay_suspended
from mortal_tasks import server_watch
from mortal_tasks.server_watch import ServerWatch, watch_server


@pytest.fixture(autouse=True)
def looks_often(monkeypatch):
    monkeypatch.setattr(server_watch, "POLL_S", 0.2)


@flow(persist_result=False)
async def night(state_type: str, message: str):
    """Whether it hears of that state within two looks at the server."""
    heard = []
    cancelled = State(type=StateType(state_type), message=message)
    async with watch_server(60, heard.append) as watch:
        async with get_client() as client:
            await client.set_flow_run_state(UUID(flow_run.id), cancelled)
        await two_looks(watch)
    return bool(heard)


async def two_looks(watch):
    """Wait until it has looked at the server twice, beginning after now."""
    looked, look = asyncio.Semaphore(0), watch._answers

    async def counted():
        answers = await look()
        looked.release()
        return answers

    watch._answers = counted
    await looked.acquire()
    await looked.acquire()


@pytest.mark.parametrize(
    ("state_type", "message", "stops"),
    [
        ("CANCELLING", "", True),
        ("CANCELLED", "too long", True),
        ("CANCELLED", "Deployment concurrency limit reached.", False),
    ],
    ids=["the command flow-run cancel", "an automation", "a limit, while it was taken for dead"],
)
def test_a_cancelled_run_without_a_worker_stops(server, state_type, message, stops):
    with temporary_settings({PREFECT_API_URL: server.api_url}):
        assert asyncio.run(night(state_type, message)) is stops


@task(name="generate", task_run_name="generate")
async def stage():
    pass


@flow(persist_result=False)
async def deleted_night():
    """The event that is sent after the flow run is deleted: none."""
    async with watch_server(60) as watch:
        async with get_client() as client:
            await client.delete_flow_run(UUID(flow_run.id))
        async with asyncio.timeout(60):
            while not watch.forgotten:
                await asyncio.sleep(0.1)
        sent = emit_event("told", {"prefect.resource.id": "a stage"})
        await stage()
    assert emit_event("told", {"prefect.resource.id": "the next flow's"}) is not None
    raise ended_already(Completed(data=sent))


def test_of_a_deleted_run_nothing_more_is_told(server):
    """Prefect's server could not store it, and would drop other runs' task runs with it."""
    with (
        temporary_settings({PREFECT_API_URL: server.api_url}),
        pytest.raises(Abort) as ended,
    ):
        asyncio.run(deleted_night())
    assert ended.value.state.data is None


@flow(persist_result=False)
async def complete_night(cancels: bool):
    """A night that is cancelled after its last step."""
    if cancels:
        cancelled = State(type=StateType.CANCELLING)
        async with get_client() as client:
            await client.set_flow_run_state(UUID(flow_run.id), cancelled)
    await end_over_cancellation(Completed(message="step 9/9", data=9))
    return UUID(flow_run.id)


def test_a_run_that_was_complete_before_it_could_be_cancelled_is_completed(server):
    async def last_states():
        with pytest.raises(Abort) as ended:
            await complete_night(cancels=True)
        assert ended.value.state.data == 9
        async with get_client() as client:
            (cancelled,) = await client.read_flow_runs(
                flow_run_filter=FlowRunFilter.model_validate(
                    {"state": {"name": {"any_": ["Completed"]}}, "parent_flow_run_id": None}
                ),
                flow_filter=FlowFilter.model_validate({"name": {"any_": ["complete-night"]}}),
            )
            await complete_night(cancels=False)
        return cancelled.state.message

    with temporary_settings({PREFECT_API_URL: server.api_url}):
        assert asyncio.run(last_states()) == "step 9/9"


@flow(persist_result=False)
async def suspended_night():
    """Suspended for a moment, as the button *Pause* of Prefect's page does."""
    async with get_client() as client:
        until_then = Suspended(timeout_seconds=1)
        await client.set_flow_run_state(UUID(flow_run.id), until_then, force=True)
    await stay_suspended()
    raise Pause(state=until_then)


def test_a_suspended_run_may_be_resumed_however_late(server):
    async def resumed():
        async with get_client() as client:
            flow_id = await client.create_flow(suspended_night)
            deployment = await client.create_deployment(flow_id=flow_id, name="suspended")
            made = await client.create_flow_run_from_deployment(deployment, state=Pending())
            with pytest.raises(Pause):
                await run_flow_async(suspended_night, flow_run=made)
            await asyncio.sleep(1.5)
            answer = await client.resume_flow_run(made.id)
            await client.delete_deployment(deployment)
        return answer

    with temporary_settings({PREFECT_API_URL: server.api_url}):
        assert asyncio.run(resumed()).status == SetStateStatus.ACCEPT


def test_a_worker_has_time_to_tell_the_process(monkeypatch):
    watch = ServerWatch(None, None, 60, print)
    now = 1000.0
    monkeypatch.setattr("time.monotonic", lambda: now)
    cancelling = State(type=StateType.CANCELLING)
    assert not watch._is_cancelled(cancelling, has_worker=True)
    now += 31
    assert watch._is_cancelled(cancelling, has_worker=True), "it is gone"
    assert not watch._is_cancelled(State(type=StateType.RUNNING), has_worker=True)
    assert not watch._is_cancelled(cancelling, has_worker=True)
