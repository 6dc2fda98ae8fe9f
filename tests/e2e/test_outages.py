"""What is no fault of the run's: its flow run is Crashed, and so comes back by itself."""

import asyncio

import pytest
from prefect.client.orchestration import get_client
from prefect.flow_engine import run_flow_async
from prefect.settings import PREFECT_API_URL, temporary_settings
from prefect.states import Pending

from mortal_flows.grpo_train import grpo_train
from tests.support.deployments import tiny_config
from tests.support.disk import mounted
from tests.support.project import write_project
from tests.support.undisturbed import begun


@pytest.fixture
def disk(tmp_path):
    try:
        with mounted(tmp_path / "runs", megabytes=4) as disk:
            yield disk
    except PermissionError as error:
        pytest.skip(str(error))


async def attempted(config):
    """How a flow run of a deployment ends that trains so."""
    async with get_client() as client:
        flow_id = await client.create_flow(grpo_train)
        deployment = await client.create_deployment(flow_id=flow_id, name="on-a-full-disk")
        parameters = {"config": config}
        made = await client.create_flow_run_from_deployment(deployment, parameters=parameters)
        await client.set_flow_run_state(made.id, Pending(), force=True)
        flow_run = await client.read_flow_run(made.id)
        state = await run_flow_async(
            grpo_train, flow_run=flow_run, parameters=parameters, return_type="state"
        )
        await client.delete_deployment(deployment)
        return state


def test_a_full_disk_crashes_the_flow_run(server, tmp_path, monkeypatch, disk):
    write_project(tmp_path)
    config = tiny_config(tmp_path, "full")
    begun(tmp_path, config, "full")
    monkeypatch.chdir(tmp_path)
    with disk.full(), temporary_settings({PREFECT_API_URL: server.api_url}):
        state = asyncio.run(attempted(config))
    assert state.type == "CRASHED"
    assert "the disk is full" in state.message
