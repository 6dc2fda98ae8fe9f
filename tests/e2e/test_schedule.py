"""The nightly job: a deployed cron, a process worker, one night after the other."""

import time
from datetime import UTC, datetime

import pytest

from mortal_steps.runs.run import find_run
from tests.support.deployments import PATIENCE_S, as_parameter, tiny_config

NIGHTS = 3


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


def test_three_nights_of_a_schedule_train_three_models(prefect, project):
    config = tiny_config(project, "", max_steps=2)
    del config["run_id"], config["evaluation"]
    prefect(
        *("--no-prompt", "deploy", "flows/grpo_train.py:grpo_train", "--name", "nights"),
        *("--pool", "local", "--cron", "0 3 * * *", "--param", as_parameter(config)),
    )
    nights = scheduled_runs(prefect, "nights")
    assert all(night["auto_scheduled"] for night in nights)
    with prefect.worker():
        for night in nights:
            let_it_be_night(prefect, night["id"])
            assert (
                prefect.wait_for(night["id"], "Completed", "Failed", "Crashed")[-1] == "Completed"
            )
    folders = (project / "runs").glob("tiny-*")
    runs = [find_run(project / "runs", folder.name) for folder in folders]
    assert len(runs) == NIGHTS
    assert all(run.is_complete() and len(run.metrics()) == 2 for run in runs)
    assert len({run.manifest.ui_url for run in runs}) == NIGHTS
