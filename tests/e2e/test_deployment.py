"""The shipped deployments on a real server; test_schedule.py and test_recovery.py run them."""

import json
import subprocess
import sys
import tomllib

import yaml

from tests.support.paths import ROOT


def test_the_deployed_configuration_is_the_demo():
    shipped = yaml.safe_load((ROOT / "deployments/prefect.yaml").read_text())
    demo = tomllib.loads((ROOT / "deployments/configs/demo.toml").read_text())
    deployments = {entry["name"]: entry for entry in shipped["deployments"]}
    assert set(deployments) == {"local", "nightly", "promote"}
    for deployment in (deployments["local"], deployments["nightly"]):
        assert deployment["parameters"]["config"] == demo
        assert deployment["concurrency_limit"]["limit"] == 1
    assert deployments["nightly"]["schedules"][0]["cron"]


def test_a_work_pool_that_is_there_keeps_its_template(prefect):
    pool = prefect.http.get("/work_pools/local").json()
    pool["base_job_template"]["variables"]["properties"]["edited"] = {"type": "string"}
    edited = {"base_job_template": pool["base_job_template"]}
    prefect.http.patch("/work_pools/local", json=edited)
    make = [sys.executable, "-c", "from mortal.remote.deploy import make_pool; make_pool()"]
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
