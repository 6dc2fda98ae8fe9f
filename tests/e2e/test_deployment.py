"""The shipped deployments on a real server, run by a real process worker."""

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
import tomllib
from pathlib import Path

import httpx
import pytest
import yaml

ROOT = Path(__file__).parent.parent.parent


def test_the_deployed_configuration_is_the_demo():
    shipped = yaml.safe_load((ROOT / "deployments/prefect.yaml").read_text())
    demo = tomllib.loads((ROOT / "deployments/configs/demo.toml").read_text())
    deployments = {entry["name"]: entry for entry in shipped["deployments"]}
    assert set(deployments) == {"local", "nightly"}
    for deployment in deployments.values():
        assert deployment["parameters"]["config"] == demo
        assert deployment["concurrency_limit"]["limit"] == 1
    assert deployments["nightly"]["schedules"][0]["cron"]


class Prefect:
    """The `prefect` command against the test's server."""

    def __init__(self, api_url: str) -> None:
        self.env = {**os.environ, "PREFECT_API_URL": api_url, "HF_HUB_OFFLINE": "1"}

    def __call__(self, *arguments: str) -> str:
        finished = subprocess.run(
            [sys.executable, "-m", "prefect", *arguments],
            cwd=ROOT,
            env={**self.env, "PWD": str(ROOT)},
            capture_output=True,
            text=True,
            timeout=240,
            check=False,
        )
        assert finished.returncode == 0, finished.stdout + finished.stderr
        return finished.stdout

    @contextlib.contextmanager
    def worker(self):
        """A process worker that looks for work every second."""
        process = subprocess.Popen(
            [sys.executable, "-m", "prefect", "worker", "start", "--pool", "local"],
            cwd=ROOT,
            env={**self.env, "PREFECT_WORKER_QUERY_SECONDS": "1"},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            # A shell starts background jobs with SIGINT ignored, and children inherit that.
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
        )
        try:
            yield process
        finally:
            process.send_signal(signal.SIGINT)
            try:
                process.wait(timeout=30)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


@pytest.fixture(scope="module")
def prefect(server):
    prefect = Prefect(server.api_url)
    prefect("work-pool", "create", "local", "--type", "process")
    prefect("--no-prompt", "deploy", "--all", "--prefect-file", "deployments/prefect.yaml")
    return prefect


def tiny_config(project: Path, run_id: str) -> dict:
    """The tiny project's configuration with absolute paths."""
    config = tomllib.loads((project / "tiny.toml").read_text())
    config["data"]["source"] = str(project / "train.jsonl")
    config["rewards"]["functions"] = [f"{project}/rewards.py:matches"]
    return {**config, "run_id": run_id, "runs_dir": str(project / "runs")}


def test_a_deployment_runs_the_same_job(prefect, mortal, project):
    with prefect.worker():
        config = json.dumps(tiny_config(project, "deployed"))
        prefect("deployment", "run", "grpo-train/local", "--param", f"config={config}", "--watch")
    mortal("train", "tiny.toml", "--run-id", "beside")
    deployed, beside = mortal.show("deployed"), mortal.show("beside")
    assert deployed["status"] == "completed"
    assert deployed["final_weights_sha256"] == beside["final_weights_sha256"]
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        runs = {run["name"]: run["state_type"] for run in mortal.runs_of_flow("deployed")}
        if set(runs.values()) == {"COMPLETED"} and "save_final" in runs:
            break
        time.sleep(0.5)
    assert {f"train_step/{step}" for step in range(5)} <= set(runs)
    assert {f"generate/{step}/3" for step in range(5)} <= set(runs)


def test_a_bad_parameter_is_refused_before_anything_runs(prefect):
    deployment = httpx.get(
        f"{prefect.env['PREFECT_API_URL']}/deployments/name/grpo-train/local", timeout=30
    ).json()
    assert "RunConfig" in json.dumps(deployment["parameter_openapi_schema"])
    answer = httpx.post(
        f"{prefect.env['PREFECT_API_URL']}/deployments/{deployment['id']}/create_flow_run",
        json={"parameters": {"config": {"training": {"batch_size": "many"}}}},
        timeout=30,
    )
    assert answer.status_code == 409
    assert "batch_size" in answer.text or "many" in answer.text
