"""The shipped deployments on a real server; test_schedule.py and test_recovery.py run them."""

import asyncio
import json
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from uuid import UUID

from prefect.client.orchestration import get_client
from prefect.settings import PREFECT_API_URL, temporary_settings
from prefect.states import Cancelled

from mortal_flows.lateness import give_place
from tests.support.paths import ROOT


def test_a_work_pool_that_is_there_keeps_its_template(prefect):
    pool = prefect.http.get("/work_pools/local").json()
    pool["base_job_template"]["variables"]["properties"]["edited"] = {"type": "string"}
    edited = {"base_job_template": pool["base_job_template"]}
    prefect.http.patch("/work_pools/local", json=edited)
    make = [sys.executable, "-c", "from mortal.remote.deploy import make_pools; make_pools()"]
    done = subprocess.run(make, cwd=ROOT, env=prefect.env, capture_output=True, text=True)
    assert "work pool local (process) exists" in done.stdout, done.stderr
    found = prefect.http.get("/work_pools/local").json()["base_job_template"]
    assert "edited" in found["variables"]["properties"]


def test_a_bad_parameter_is_refused_before_anything_runs(prefect):
    deployment = prefect.http.get("/deployments/name/grpo-train/local").json()
    assert "RunConfig" in json.dumps(deployment["parameter_openapi_schema"])
    answer = prefect.http.post(
        f"/deployments/{deployment['id']}/create_flow_run",
        json={"parameters": {"config": {"training": {"batch_size": "many"}}}},
    )
    assert answer.status_code == 409
    assert "batch_size" in answer.text or "many" in answer.text


def test_a_night_is_skipped_while_another_one_trains(prefect):
    """As a worker would, take one scheduled run after the other."""
    first, second = (
        prefect.run_deployment({"name": "never-begun"}, "nightly", command="true") for _ in "ab"
    )
    try:
        prefect.set_state(first, "PENDING")
        prefect.set_state(first, "RUNNING")
        answer = prefect.http.post(
            f"/flow_runs/{second}/set_state", json={"state": {"type": "PENDING"}}
        ).json()
        assert answer["state"]["type"] == "CANCELLED", answer
        assert prefect.states(first)[-1] == "Running"
    finally:
        for run in (first, second):
            prefect.http.delete(f"/flow_runs/{run}")


def test_after_nights_that_were_missed_the_one_that_is_due_begins(prefect):
    """A machine that was off takes all of them at once, and the oldest has the place."""
    due = datetime.now(UTC) - timedelta(minutes=10)
    deployment_id = deployed_night(prefect, due)
    for_three_nights = {
        "start_time": str(due - timedelta(days=2, minutes=1)),
        "end_time": str(due + timedelta(minutes=1)),
        "min_runs": 3,
    }
    prefect.http.post(f"/deployments/{deployment_id}/schedule", json=for_three_nights)
    wanted = {"deployments": {"id": {"any_": [deployment_id]}}, "sort": "EXPECTED_START_TIME_ASC"}
    nights = [run["id"] for run in prefect.http.post("/flow_runs/filter", json=wanted).json()][:3]
    for night in nights:
        wanted_state = {"state": {"type": "PENDING"}}
        prefect.http.post(f"/flow_runs/{night}/set_state", json=wanted_state)
    assert [prefect.states(night)[-1] for night in nights] == ["Pending", "Cancelled", "Cancelled"]

    async def skip_the_oldest():
        async with get_client() as client:
            oldest = await client.read_flow_run(UUID(nights[0]))
            begins = await give_place(client, oldest, Cancelled(message="too late"))
        return begins and str(begins.id)

    with temporary_settings({PREFECT_API_URL: prefect.env["PREFECT_API_URL"]}):
        assert asyncio.run(skip_the_oldest()) == nights[2]
    ends = [prefect.states(night)[-1] for night in nights]
    assert ends == ["Cancelled", "Cancelled", "Scheduled"]
    prefect.set_state(nights[2], "PENDING")
    prefect.http.delete(f"/deployments/{deployment_id}")


def deployed_night(prefect, due):
    """A deployment as `nightly` is, with a schedule of its own; its id."""
    nightly = prefect.http.get("/deployments/name/grpo-train/nightly").json()
    deployment = {
        "name": "missed",
        "flow_id": nightly["flow_id"],
        "concurrency_limit": nightly["global_concurrency_limit"]["limit"],
        "concurrency_options": nightly["concurrency_options"],
        "parameters": {"skip_after_min": 60},
        "schedules": [{"schedule": {"interval": 86400, "anchor_date": str(due)}, "active": True}],
    }
    answer = prefect.http.post("/deployments/", json=deployment)
    assert answer.status_code in (200, 201), answer.text
    return answer.json()["id"]
