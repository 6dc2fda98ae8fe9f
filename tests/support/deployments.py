"""The shipped deployments on a test's server: the `prefect` command, a worker, flow runs."""

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
import tomllib
from pathlib import Path

import pytest
from prefect.client.base import PrefectHttpxSyncClient

from tests.support.forked_commands import ForkedCommand
from tests.support.paths import ROOT

PATIENCE_S = 240
"""How long a test waits for what should come at once: machines are slow at times."""


class Prefect:
    """The `prefect` command against the test's server."""

    def __init__(self, api_url: str) -> None:
        self.env = {**os.environ, "PREFECT_API_URL": api_url, "HF_HUB_OFFLINE": "1"}
        # Asks again when the server answers 503: its SQLite was locked.
        self.http = PrefectHttpxSyncClient(base_url=api_url, timeout=30, raise_on_all_errors=False)

    def __call__(self, *arguments: str, folder: Path = ROOT) -> str:
        process = ForkedCommand(
            ["-m", "prefect", *arguments],
            cwd=folder,
            env={**self.env, "PWD": str(folder)},
            stdout=subprocess.PIPE,
        )
        said, _ = process.communicate(timeout=PATIENCE_S)
        assert process.returncode == 0, said
        return said

    def start_worker(self) -> subprocess.Popen:
        """Return a process worker that looks for work every second; a process group of its own."""
        return subprocess.Popen(
            [sys.executable, "-m", "prefect", "worker", "start", "--pool", "local"],
            cwd=ROOT,
            env={**self.env, "PREFECT_WORKER_QUERY_SECONDS": "1"},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )

    @contextlib.contextmanager
    def worker(self):
        """Yield a worker for the time of the block."""
        process = self.start_worker()
        try:
            yield process
        finally:
            process.send_signal(signal.SIGINT)
            try:
                process.wait(timeout=30)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()

    def run_deployment(self, config: dict, name: str = "local", **job_variables: str) -> str:
        """Schedule a flow run of a deployment now; its id."""
        deployment = self.http.get(f"/deployments/name/grpo-train/{name}").json()
        answer = self.http.post(
            f"/deployments/{deployment['id']}/create_flow_run",
            json={
                "state": {"type": "SCHEDULED"},
                "parameters": {"config": config, "config_file": None},
                "job_variables": job_variables,
            },
        )
        assert answer.status_code == 201, answer.text
        return answer.json()["id"]

    def set_state(self, flow_run_id: str, state_type: str) -> None:
        """Set the flow run's state, as a worker or an engine does."""
        wanted = {"state": {"type": state_type}}
        answer = self.http.post(f"/flow_runs/{flow_run_id}/set_state", json=wanted)
        assert answer.json()["status"] == "ACCEPT", answer.text

    def cancel(self, flow_run_id: str) -> None:
        """What `prefect flow-run cancel` does, less the seconds that a command takes to start."""
        self.set_state(flow_run_id, "CANCELLING")

    def states(self, flow_run_id: str) -> list[str]:
        """Names of the flow run's states, oldest first."""
        answer = self.http.get("/flow_run_states/", params={"flow_run_id": flow_run_id})
        return [state["name"] for state in sorted(answer.json(), key=lambda s: s["timestamp"])]

    def wait_for(self, flow_run_id: str, *names: str, within_s: float = PATIENCE_S) -> list[str]:
        """Return the flow run's states once the last of them is one of `names`."""
        deadline = time.monotonic() + within_s
        while time.monotonic() < deadline:
            states = self.states(flow_run_id)
            if states[-1] in names:
                return states
            time.sleep(0.1)
        pytest.fail(f"flow run not {' or '.join(names)} after {within_s:g} s: {states}")

    def wait_for_worker(self, flow_run_id: str) -> None:
        """Wait until a worker has cleaned up after a killed flow run, which it logs at the end.

        It reports the crash a second time then, whatever the run's state has become.
        """
        wanted = {"logs": {"flow_run_id": {"any_": [flow_run_id]}}, "sort": "TIMESTAMP_DESC"}
        deadline = time.monotonic() + PATIENCE_S
        while time.monotonic() < deadline:
            logs = self.http.post("/logs/filter", json=wanted).json()
            if any("exceeded its memory allocation" in log["message"] for log in logs):
                return
            time.sleep(0.2)
        pytest.fail(f"no worker cleaned up after flow run {flow_run_id}")


def tiny_config(project: Path, run_id: str, **training: int) -> dict:
    """Return the tiny project's configuration with absolute paths."""
    config = tomllib.loads((project / "tiny.toml").read_text())
    config["data"]["source"] = str(project / "train.jsonl")
    config["rewards"]["functions"] = [f"{project}/rewards.py:matches"]
    config["training"].update(training)
    return {**config, "run_id": run_id, "runs_dir": str(project / "runs")}


def as_parameter(config: dict) -> str:
    """Return a configuration for `prefect deployment run --param`."""
    return f"config={json.dumps(config)}"
