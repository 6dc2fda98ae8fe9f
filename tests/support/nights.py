"""Deployments with a schedule whose nights come when a test wants them."""

import time
from datetime import UTC, datetime

import pytest
import yaml

from tests.support.deployments import PATIENCE_S, as_parameter
from tests.support.paths import ROOT

NIGHTS = 3


def deployed(prefect, name, settings):
    """Deploy the flow with these settings and a cron; the flow runs that its schedule makes."""
    prefect(
        *("--no-prompt", "deploy", "flows/grpo_train.py:grpo_train", "--name", name),
        *("--pool", "local", "--cron", "0 3 * * *", "--param", as_parameter(settings)),
    )
    return scheduled_runs(prefect, f"grpo-train/{name}")


def deployed_recipe(prefect, folder, name, recipe_file):
    """Deploy the recipe in `folder` as a user does, from the shipped file, with a cron; the flow
    runs that its schedule makes."""
    shipped = yaml.safe_load((ROOT / "deployments" / "prefect.yaml").read_text())
    (recipe,) = [each for each in shipped["deployments"] if each["name"] == "recipe"]
    recipe |= {
        "name": name,
        "schedules": [{"cron": "0 3 * * *", "timezone": "UTC"}],
        "parameters": {"recipe_file": recipe_file},
    }
    (folder / "prefect.yaml").write_text(yaml.safe_dump({**shipped, "deployments": [recipe]}))
    prefect("--no-prompt", "deploy", "--all", folder=folder)
    return scheduled_runs(prefect, f"recipe/{name}")


def scheduled_runs(prefect, deployment):
    """The flow runs that the server's scheduler has made for a deployment, the next one first."""
    found = prefect.http.get(f"/deployments/name/{deployment}").json()
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


def the_run(mortal):
    """Return the id of the one run there, as soon as there is one."""
    deadline = time.monotonic() + PATIENCE_S
    while not (found := list((mortal.folder / "runs").glob("tiny-*/run.json"))):
        assert time.monotonic() < deadline
        time.sleep(0.1)
    return found[0].parent.name
