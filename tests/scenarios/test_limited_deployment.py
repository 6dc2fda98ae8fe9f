"""The run of a deployment that lets one run at a time, whose place the server lends for a while."""

import asyncio

from prefect import flow
from prefect.client.orchestration import get_client
from prefect.concurrency import _leases
from prefect.flow_engine import run_flow_async
from prefect.runtime import flow_run
from prefect.settings import PREFECT_API_URL, temporary_settings
from prefect.states import Crashed, Pending

from mortal_tasks.server_watch import watch_server

RENEWED_EVERY_S = 2.0
"""225 s otherwise."""


async def deployment_of(client, which):
    """A deployment as `nightly` is; its id."""
    flow_id = await client.create_flow(which)
    deployment = {
        "name": which.name,
        "flow_id": str(flow_id),
        "concurrency_limit": 1,
        "concurrency_options": {"collision_strategy": "ENQUEUE"},
    }
    return (await client.request("POST", "/deployments/", json=deployment)).json()["id"]


async def begin(client, deployment_id):
    """A flow run that a worker has taken, as its process reads it."""
    flow_run = await client.create_flow_run_from_deployment(deployment_id)
    await client.set_flow_run_state(flow_run.id, Pending())
    return await client.read_flow_run(flow_run.id)


def run(killable, monkeypatch, name, meanwhile):
    """The state of a run during which something happens, and the name of the state of the next one,
    which is to begin then."""

    @flow(name=name, persist_result=False)
    async def night():
        async with watch_server(300) as watch:
            await meanwhile(flow_run.id)
            await watch.back()
            await asyncio.sleep(3 * RENEWED_EVERY_S)
            async with get_client() as client:
                return (await begin(client, deployment)).state.name

    async def to_its_end():
        nonlocal deployment
        async with get_client() as client:
            deployment = await deployment_of(client, night)
            begun = await begin(client, deployment)
        next_one = await run_flow_async(night, flow_run=begun, parameters={})
        async with get_client() as client:
            return (await client.read_flow_run(begun.id)).state, next_one

    deployment = None
    monkeypatch.setattr(_leases, "_RENEWAL_FRACTION", RENEWED_EVERY_S / 300)
    with temporary_settings({PREFECT_API_URL: killable.api_url}):
        return asyncio.run(to_its_end())


def test_a_server_that_is_away_or_started_again_leaves_a_run_its_place(killable, monkeypatch):
    async def meanwhile(flow_run_id):
        await asyncio.sleep(RENEWED_EVERY_S)
        killable.kill()
        await asyncio.sleep(5 * RENEWED_EVERY_S)
        await asyncio.to_thread(killable.start)

    state, next_one = run(killable, monkeypatch, "away", meanwhile)
    assert state.name == "Completed", state.message
    assert next_one == "AwaitingConcurrencySlot", "only one at a time"


def test_a_run_that_the_server_gives_up_while_it_lives_goes_on(killable, monkeypatch):
    """Its place is free then."""

    async def meanwhile(flow_run_id):
        async with get_client() as client:
            await client.set_flow_run_state(flow_run_id, Crashed(), force=True)

    state, next_one = run(killable, monkeypatch, "given-up", meanwhile)
    assert state.name == "Completed", state.message
    assert next_one == "Pending"
