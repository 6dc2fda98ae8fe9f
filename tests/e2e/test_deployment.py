"""The shipped deployments on a real server; test_schedule.py and test_recovery.py run them."""

import asyncio
import json
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from uuid import UUID

from prefect.client.orchestration import get_client
from prefect.client.schemas.objects import FlowRun
from prefect.flow_engine import run_flow_async
from prefect.settings import PREFECT_API_URL, temporary_settings

from mortal_flows.grpo_train import grpo_train
from tests.support.nights import let_it_be_night
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


def test_after_nights_that_were_missed_the_one_that_is_due_begins(prefect):
    """A machine that was off takes all of them at once; they wait for each other."""
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

    def ask_for(night):
        """As a worker does; the state that the night is in then."""
        pending = {"state": {"type": "PENDING"}}
        prefect.http.post(f"/flow_runs/{night}/set_state", json=pending)
        return prefect.states(night)[-1]

    async def take(night):
        """As the process that a worker starts."""
        async with get_client() as client:
            begun = await client.read_flow_run(UUID(night))
        state = await run_flow_async(
            grpo_train, flow_run=begun, parameters=begun.parameters, return_type="state"
        )
        return state.message

    with temporary_settings({PREFECT_API_URL: prefect.env["PREFECT_API_URL"]}):
        first, second, third = nights
        assert ask_for(first) == "Pending"
        assert {ask_for(second), ask_for(third)} == {"AwaitingConcurrencySlot"}
        for late in (first, second):
            if late == second:  # which was told to wait for half a minute
                let_it_be_night(prefect, second)
            assert ask_for(late) == "Pending"
            assert "could only begin " in asyncio.run(take(late))
            assert prefect.states(late)[-1] == "Cancelled"
        assert ask_for(third) == "Pending"
        tonight = prefect.http.get(f"/flow_runs/{third}").json()
        assert FlowRun.model_validate(tonight).expected_start_time <= due
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
