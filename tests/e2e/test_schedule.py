"""The nightly job: a deployed cron, a process worker, a night whose machine is taken away, and the
deployment that goes on with it. `make scenarios` has one night after the other, and one that is
killed and retried."""

import asyncio
import signal
import time
from types import SimpleNamespace
from uuid import UUID

import pytest
from prefect.client.orchestration import get_client
from prefect.flow_engine import run_flow_async
from prefect.settings import PREFECT_API_URL, temporary_settings

from mortal_flows.grpo_train import grpo_train
from mortal_steps.runs.run import find_run
from tests.support.command import Mortal, assert_saved, end_driver, wait_for_step
from tests.support.damage import lose_the_last_step
from tests.support.deployments import PATIENCE_S, tiny_config
from tests.support.nights import NIGHTS, deployed, let_it_be_night, the_run
from tests.support.project import write_project
from tests.support.undisturbed import assert_same, undisturbed

STEPS = 12


@pytest.fixture(scope="module")
def project(tmp_path_factory):
    folder = tmp_path_factory.mktemp("nights")
    write_project(folder)
    return folder


@pytest.fixture(scope="module")
def mortal(project, server):
    return Mortal(project, server.api_url)


@pytest.fixture(scope="module")
def settings(project):
    """Of the deployment, which names no run."""
    config = tiny_config(project, "", max_steps=STEPS)
    config["checkpoints"]["save_steps"] = STEPS
    del config["run_id"], config["evaluation"]
    return config


@pytest.fixture(scope="module")
def nights(prefect, settings):
    """The flow runs that the deployment's schedule makes."""
    return deployed(prefect, "nights", settings)


@pytest.fixture(scope="module")
def night(prefect, mortal, nights):
    """The first of them, told to go as on a machine that is taken away: its states, and the run as
    that left it."""
    flow_run_id = nights[0]["id"]
    with prefect.worker():
        let_it_be_night(prefect, flow_run_id)
        run_id = the_run(mortal)
        wait_for_step(mortal, run_id, 4)
        end_driver(mortal, run_id, signal.SIGTERM)
        states = prefect.wait_for(flow_run_id, "Crashed")
    return SimpleNamespace(states=states, run=find_run(mortal.folder / "runs", run_id))


def test_a_schedule_makes_flow_runs(nights):
    assert len({night["id"] for night in nights}) == NIGHTS
    assert all(night["auto_scheduled"] for night in nights)


def test_a_night_whose_machine_goes_is_saved(night):
    told = [state for state in night.states if state in ("Running", "Crashed")]
    assert told == ["Running", "Crashed"]
    assert_saved(night.run, 4)


def test_the_server_knows_every_stage_until_then(mortal, night):
    known = {}
    deadline = time.monotonic() + PATIENCE_S
    trained = {f"train_step/{step}" for step in range(night.run.manifest.step)}
    while not trained <= set(known):
        assert time.monotonic() < deadline, known
        found = mortal.runs_of_flow(night.run.info.run_id)
        known = {run["name"]: run["state_type"] for run in found}
        time.sleep(0.2)
    assert {f"generate/{step}/3" for step in range(4)} <= set(known)


def test_the_deployment_resume_goes_on_to_the_bits_of_the_bare_loop(
    prefect, mortal, night, settings
):
    run_id = night.run.info.run_id
    again = lose_the_last_step(night.run)
    which = ("--param", f"run_id={run_id}", "--param", f"runs_dir={mortal.folder}/runs")
    with prefect.worker():
        prefect("deployment", "run", "grpo-train/resume", *which, "--watch")
    assert_same(mortal.folder, run_id, undisturbed(mortal.folder, settings))
    task_runs = mortal.ended_runs_of_flow(run_id)
    replayed = {run["name"] for run in task_runs if "replayed" in run["tags"]}
    assert {f"generate/{again}/{shard}" for shard in (0, 2, 3)} <= replayed
    states = {run["state_type"] for run in task_runs}
    assert "CRASHED" in states, "the segment that was killed"
    assert states <= {"COMPLETED", "CRASHED", "CANCELLED", "FAILED"}, "nothing stays Running"


def test_a_night_whose_run_was_complete_is_skipped_and_a_retry_of_it_is_not(
    prefect, nights, night, settings
):
    """The configuration names the run of an earlier night. A night that comes back finds its own
    run complete where it was killed before it could say so."""
    again = {"config": {**settings, "run_id": night.run.info.run_id}}
    first, second = (come(prefect, nights[1], again) for _ in "ab")
    assert (first.name, second.name) == ("Cancelled", "Completed")
    assert f"run {night.run.info.run_id} was complete" in first.message
    assert "nothing was trained" in second.message


def come(prefect, night, parameters):
    """Let a night begin in this process; its last state."""

    async def begin():
        let_it_be_night(prefect, night["id"])
        async with get_client() as client:
            flow_run = await client.read_flow_run(UUID(night["id"]))
        return await run_flow_async(
            grpo_train, flow_run=flow_run, parameters=parameters, return_type="state"
        )

    with temporary_settings({PREFECT_API_URL: prefect.env["PREFECT_API_URL"]}):
        return asyncio.run(begin())
