"""What `mortal schedule` does beside the runs: it outlasts its server, and its deployments."""

import asyncio
import contextlib
import socket
import time

import pytest
from prefect.client.orchestration import get_client
from prefect.settings import PREFECT_API_URL, temporary_settings

from mortal.server.resilient_runner import ResilientRunner
from mortal.server.scheduled import cron_schedule, scheduled_deployments
from mortal_steps.plan.loader import load_config
from tests.support.deployments import PATIENCE_S
from tests.support.paths import ROOT

NAME = "grpo-train/served"


@pytest.fixture
def deployments():
    config = load_config(ROOT / "deployments/configs/demo.toml")
    return scheduled_deployments(
        config.model_dump(mode="json"), "served", cron_schedule("0 3 * * *", "Europe/Berlin")
    )


class Counting(ResilientRunner):
    looks = 0

    async def _look(self, begin_what_is_due):
        await super()._look(begin_what_is_due)
        self.looks += 1


@contextlib.asynccontextmanager
async def serving(runner):
    """The runner at work, which has not ended by itself when the block ends."""
    work = asyncio.create_task(runner.start())
    await until(lambda: runner.started or work.done())
    yield
    assert not work.done(), work
    await runner.astop()
    await work


async def until(ready):
    deadline = time.monotonic() + PATIENCE_S
    while not ready():
        assert time.monotonic() < deadline
        await asyncio.sleep(0.02)


def test_deployments_that_the_server_has_lost_are_made_again(server, deployments):
    said = []

    async def serve():
        runner = Counting(deployments, said.append, query_seconds=0.02)
        await runner.deploy()
        async with get_client() as client, serving(runner):
            first = await client.read_deployment_by_name(NAME)
            assert not first.paused
            await client.delete_deployment(first.id)
            await until(lambda: said)
            again = await client.read_deployment_by_name(NAME)
            assert again.id != first.id
            assert again.schedules[0].schedule == first.schedules[0].schedule
            assert again.job_variables == first.job_variables
            await runner.pause()
            for name in (NAME, f"{NAME}-resume"):
                assert (await client.read_deployment_by_name(name)).paused

    with temporary_settings({PREFECT_API_URL: server.api_url}):
        asyncio.run(serve())
    assert said[0].startswith(f"the server did not know {NAME} any more")


def test_a_server_that_is_away_ends_nothing(server, deployments):
    said = []

    async def serve(away):
        runner = Counting(deployments, said.append, query_seconds=0.02)
        async with serving(runner):
            poller = runner._scheduled_run_poller
            there, poller._client = poller._client, away
            async with away:
                await until(lambda: runner.looks > 5)
                assert len(said) == 1
                poller._client = there
            await until(lambda: len(said) == 2)

    with socket.socket() as nobody_listens:
        nobody_listens.bind(("127.0.0.1", 0))
        away = f"http://127.0.0.1:{nobody_listens.getsockname()[1]}/api"
        with temporary_settings({PREFECT_API_URL: away}):
            client = get_client()
        with temporary_settings({PREFECT_API_URL: server.api_url}):
            asyncio.run(serve(client))
    assert "does not answer" in said[0] and "no run begins until it does" in said[0]
    assert "answers again" in said[1]
