"""The `mortal` command, called as a user would call it."""

import json
import os
import subprocess
import time
from pathlib import Path

import httpx
import pytest

from mortal_steps.errors import RunNotFoundError
from mortal_steps.runs.lease import read_lease
from mortal_steps.runs.run import find_run
from mortal_steps.store import RunStore
from tests.support.deployments import PATIENCE_S
from tests.support.forked_commands import ForkedCommand

ENDED = {"COMPLETED", "CANCELLED", "CRASHED", "FAILED"}
"""Types of the states in which a task run or a flow run may end."""


def wait_for_step(mortal, run_id, step, process=None):
    """Wait until the run has done `step` steps; `process` drives it, if it is known."""
    deadline = time.monotonic() + PATIENCE_S
    while time.monotonic() < deadline:
        assert process is None or process.poll() is None, process.stdout.read()
        try:
            if find_run(mortal.folder / "runs", run_id).manifest.step >= step:
                return
        except RunNotFoundError:
            pass  # not there yet
        time.sleep(0.02)
    pytest.fail(f"run {run_id} did not reach step {step}")


def end_driver(mortal, run_id, sign):
    """Signal the process that drives a run."""
    os.kill(read_lease(RunStore(mortal.folder / "runs" / run_id)).pid, sign)


def assert_saved(run, since):
    """The run was stopped with a checkpoint of all that it had trained, at least `since` steps."""
    assert run.manifest.status == "stopped"
    assert "state saved" in run.manifest.error
    assert run.manifest.checkpoints[-1].step >= max(since, run.manifest.step)


class Mortal:
    """Runs the `mortal` command as a user would, in a project folder."""

    def __init__(self, folder: Path, api_url: str) -> None:
        self.folder = folder
        self.env = {
            **os.environ,
            "PREFECT_API_URL": api_url,
            "OMP_NUM_THREADS": "1",
            "HF_HUB_OFFLINE": "1",
        }

    def start(self, *arguments: str) -> ForkedCommand:
        """Return the command in the background."""
        command = ["-m", "mortal", *arguments]
        return ForkedCommand(command, cwd=self.folder, env=self.env, stdout=subprocess.PIPE)

    def __call__(self, *arguments: str, code: int = 0) -> str:
        """Return the command's output; its exit code must be `code`."""
        process = self.start(*arguments)
        output, _ = process.communicate(timeout=PATIENCE_S)
        assert process.returncode == code, output
        return output

    def show(self, run_id: str) -> dict:
        """`mortal show --json`."""
        return json.loads(self("show", run_id, "--json"))

    def ended_runs_of_flow(self, run_id: str) -> list[dict]:
        """`runs_of_flow` of one that has ended, once the server has written down what it was told:
        it does so some time later, one after the other."""
        deadline, before = time.monotonic() + PATIENCE_S, None
        while time.monotonic() < deadline:
            found = self.runs_of_flow(run_id)
            states = {each["id"]: each["state_type"] for each in found}
            if states == before and states and set(states.values()) <= ENDED:
                break
            before = states
            time.sleep(0.5)
        return found

    def runs_of_flow(self, run_id: str) -> list[dict]:
        """Task runs of the run's flow runs and their segments, as the server's API tells them."""
        wanted = {"flow_runs": {"tags": {"all_": [f"run:{run_id}"]}}, "limit": 200}
        found: list[dict] = []
        with httpx.Client(base_url=self.env["PREFECT_API_URL"], timeout=30) as client:
            while True:
                page = client.post(
                    "/task_runs/filter", json={**wanted, "offset": len(found)}
                ).json()
                found += page
                if len(page) < 200:
                    return found
