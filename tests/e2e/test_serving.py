"""What `mortal schedule` does beside the runs: it outlasts its server, and its deployments."""

import asyncio
import contextlib
import socket
import time

import pytest
from prefect.client.orchestration import get_client
from prefect.client.schemas.responses import SetStateStatus
from prefect.settings import PREFECT_API_URL, temporary_settings
from prefect.states import AwaitingRetry, Cancelling, Pending, Running

from mortal.server.cron import cron_schedule
from mortal.server.flow_runs import unfinished
from mortal.server.lost_runs import correct_lost_runs
from mortal.server.resilient_runner import ResilientRunner
from mortal.server.scheduled import scheduled_deployments
from mortal_steps.config.loader import load_config
from mortal_steps.runs.lease import acquire
from mortal_steps.runs.manifest import FinalModel, RunManifest
from tests.support.begun_runs import make_run
from tests.support.deployments import PATIENCE_S
from tests.support.paths import ROOT

NAME = "grpo-train/served"


@pytest.fixture
def deployments():
    config = load_config(ROOT / "deployments/configs/demo.toml")
    return scheduled_deployments(config, "served", cron_schedule("0 3 * * *", "Europe/Berlin"))


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


def test_of_a_run_that_comes_back_that_nobody_takes_it_is_told_what_it_waits_for(server):
    with (
        temporary_settings({PREFECT_API_URL: server.api_url}),
        get_client(sync_client=True) as client,
    ):
        flow_id = client.create_flow_from_name("grpo-train")
        deployment = client.create_deployment(flow_id=flow_id, name="nobody-serves-it")
        made = client.create_flow_run_from_deployment(deployment, name="grpo/waits")
        crashed = AwaitingRetry(message="Crashed; started 5 times at most.")
        client.set_flow_run_state(made.id, crashed, force=True)
        time.sleep(0.1)
        (line,) = [each for each in unfinished(server) if each[0] == "grpo/waits"]
        client.delete_deployment(deployment)
    assert line[1] == "AwaitingRetry" and line[2].endswith("late")
    assert line[3] == "no `mortal schedule` runs that serves its deployment"


def finish(store):
    with store.committing_folder("final") as folder:
        (folder / "weights").write_bytes(b"learned")
    digest = store.folder_digest("final")
    final = FinalModel(
        path="final", sha256=digest, weights_sha256="w", merged_path=None, merged_sha256=None
    )
    ended = RunManifest(status="completed", step=3, final=final)
    store.write_record("manifest.json", ended, RunManifest)


def test_flow_runs_whose_process_is_gone_are_corrected_and_free_their_place(server, tmp_path):
    """`mortal schedule` was killed together with its run, or the server's database is a copy that
    was made while the run went."""
    for run_id in ("lost", "told-to-stop", "complete", "living"):
        run = make_run(tmp_path, run_id)
        if run_id == "complete":
            finish(run)
    going = acquire(run)
    with (
        temporary_settings({PREFECT_API_URL: server.api_url}),
        get_client(sync_client=True) as client,
    ):
        deployment = client.create_deployment(
            flow_id=client.create_flow_from_name("grpo-train"),
            name="lost-runs",
            concurrency_limit=1,
            concurrency_options={"collision_strategy": "CANCEL_NEW"},
        )

        def corrected(run_id, *states):
            """The line about the flow run of a run that was left in the last of these states, and
            what its state is then."""
            name = f"grpo/{run_id}"
            flow_run = client.create_flow_run_from_deployment(deployment, name=name)
            for state in (Pending(), *states):
                answer = client.set_flow_run_state(flow_run.id, state)
                assert answer.status == SetStateStatus.ACCEPT, answer
            said = list(correct_lost_runs([deployment], tmp_path))
            return said, client.read_flow_run(flow_run.id)

        said, lost = corrected("lost", Running())
        assert lost.state_name == "Crashed"
        assert said[0].startswith("the server took run lost for Running")
        assert said[0].endswith(f"prefect flow-run retry {lost.id}")
        assert corrected("told-to-stop", Running(), Cancelling())[1].state_name == "Cancelled"
        said, complete = corrected("complete", Running())
        assert complete.state.is_completed() and complete.state.message.startswith("step 3/")
        said, living = corrected("living", Running())
        assert (said, living.state_name) == ([], "Running")
        going.release()
        identity = (tmp_path / "living/run.json").read_bytes()
        (tmp_path / "living/run.json").write_text("{")
        (line,) = correct_lost_runs([deployment], tmp_path)
        assert line.startswith("flow run grpo/living stays Running: ")
        (tmp_path / "living/run.json").write_bytes(identity)
        assert len(list(correct_lost_runs([deployment], tmp_path))) == 1
        assert corrected("on-another-machine", Running())[0] == []
