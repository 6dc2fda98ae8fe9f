"""The nightly job: a deployed cron, a process worker, one night after the other."""

import time
from datetime import UTC, datetime

import pytest

from mortal_steps.runs.run import find_run
from tests.support.command import Mortal
from tests.support.deployments import PATIENCE_S, as_parameter, tiny_config
from tests.support.project import write_project
from tests.support.undisturbed import assert_same, undisturbed

NIGHTS = 2


def scheduled_runs(prefect, deployment):
    """The flow runs that the server's scheduler has made for a deployment, the next one first."""
    found = prefect.http.get(f"/deployments/name/grpo-train/{deployment}").json()
    wanted = {"deployments": {"id": {"any_": [found["id"]]}}, "sort": "EXPECTED_START_TIME_ASC"}
    deadline = time.monotonic() + PATIENCE_S
    while time.monotonic() < deadline:
        runs = prefect.http.post("/flow_runs/filter", json=wanted).json()
        if len(runs) >= NIGHTS:
            return runs[:NIGHTS]
        time.sleep(0.5)
    pytest.fail(f"the schedule made {len(runs)} flow runs in {PATIENCE_S} s")


def let_it_be_night(prefect, flow_run_id):
    """Let a flow run that is scheduled for some night begin now, as `Run now` in the UI does."""
    now = {"type": "SCHEDULED", "state_details": {"scheduled_time": str(datetime.now(UTC))}}
    answer = prefect.http.post(
        f"/flow_runs/{flow_run_id}/set_state", json={"state": now, "force": True}
    )
    assert answer.json()["status"] == "ACCEPT", answer.text


@pytest.fixture(scope="module")
def project(tmp_path_factory):
    folder = tmp_path_factory.mktemp("nights")
    write_project(folder)
    return folder


@pytest.fixture(scope="module")
def settings(project):
    """Of the deployment, which names no run."""
    config = tiny_config(project, "", max_steps=2)
    del config["run_id"], config["evaluation"]
    return config


@pytest.fixture(scope="module")
def runs(prefect, project, settings):
    """What is there after the nights, the first one first."""
    prefect(
        *("--no-prompt", "deploy", "flows/grpo_train.py:grpo_train", "--name", "nights"),
        *("--pool", "local", "--cron", "0 3 * * *", "--param", as_parameter(settings)),
    )
    nights = scheduled_runs(prefect, "nights")
    assert all(night["auto_scheduled"] for night in nights)
    with prefect.worker():
        for night in nights:
            let_it_be_night(prefect, night["id"])
            assert (
                prefect.wait_for(night["id"], "Completed", "Failed", "Crashed")[-1] == "Completed"
            )
    found = [find_run(path.parent, path.name) for path in (project / "runs").glob("tiny-*")]
    return sorted(found, key=lambda run: run.info.created_at)


def test_each_night_trains_a_model_of_its_own(runs):
    assert len(runs) == NIGHTS
    assert all(run.is_complete() and len(run.metrics()) == 2 for run in runs)
    assert len({run.manifest.ui_url for run in runs}) == NIGHTS


def test_a_deployments_run_has_the_bits_of_the_bare_loop(runs, project, settings):
    undisturbed(project, settings)
    for run in runs:
        assert_same(project, run.info.run_id, find_run(project / "runs", "undisturbed"))


def test_the_server_knows_every_stage_of_a_deployments_run(runs, project, server):
    known = {}
    deadline = time.monotonic() + PATIENCE_S
    while not ({"COMPLETED"} == set(known.values()) and "save_final" in known):
        assert time.monotonic() < deadline, known
        found = Mortal(project, server.api_url).runs_of_flow(runs[0].info.run_id)
        known = {run["name"]: run["state_type"] for run in found}
        time.sleep(0.2)
    assert {f"train_step/{step}" for step in range(2)} <= set(known)
    assert {f"generate/{step}/3" for step in range(2)} <= set(known)
