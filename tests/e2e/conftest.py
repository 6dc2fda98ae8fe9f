"""End-to-end runs: the `mortal` command, a real Prefect server, real worker processes."""

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import httpx
import pytest

from benchmarks.chaos.project import MODEL_AND_DATA, write_words
from mortal.server.choice import prefect_server
from mortal_steps.errors import RunNotFoundError
from mortal_steps.runs.run import find_run
from tests.e2e.deployments import PATIENCE_S, Prefect

REWARDS = '''
def matches(completions, answer, **kwargs):
    """Share of the answer's letters in their place."""
    return [
        sum(a == b for a, b in zip(text, right)) / len(right)
        for text, right in zip(completions, answer)
    ]
'''

CONFIG = f"""
name = "tiny"
seed = 7
{MODEL_AND_DATA}
[rollout]
engine = "transformers"
num_rollout_workers = 1
num_shards = 4
max_tokens = 6

[rewards]
functions = ["rewards.py:matches"]

[training]
batch_size = 6
num_generations = 4
max_steps = 5
learning_rate = 1e-3
max_completion_length = 6
gradient_checkpointing = false

[evaluation]
eval_steps = 4

[checkpoints]
save_steps = 2

[compute.local.actor]
threads = 1

[logging]
artifact_steps = 2
"""


def write_project(folder: Path) -> Path:
    """A user's project: a dataset, a reward function, a configuration. Returns the last."""
    write_words(folder / "train.jsonl")
    (folder / "rewards.py").write_text(REWARDS)
    (folder / "tiny.toml").write_text(CONFIG)
    return folder / "tiny.toml"


@pytest.fixture
def project(tmp_path):
    write_project(tmp_path)
    return tmp_path


@pytest.fixture(scope="session")
def server(tmp_path_factory):
    """A Prefect server for the whole session, started as `mortal` starts its own."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MORTAL_STATE_DIR", str(tmp_path_factory.mktemp("state")))
        patch.delenv("PREFECT_API_URL", raising=False)
        with prefect_server(port=0, keep=False, say=print) as running:
            yield running


@pytest.fixture(scope="session")
def prefect(server):
    """The shipped deployments on the session's server."""
    prefect = Prefect(server.api_url)
    prefect("work-pool", "create", "local", "--type", "process")
    prefect("--no-prompt", "deploy", "--all", "--prefect-file", "deployments/prefect.yaml")
    return prefect


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

    def start(self, *arguments: str) -> subprocess.Popen:
        """The command in the background."""
        return subprocess.Popen(
            [sys.executable, "-m", "mortal", *arguments],
            cwd=self.folder,
            env=self.env,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def __call__(self, *arguments: str, code: int = 0) -> str:
        """The command's output; its exit code must be `code`."""
        process = self.start(*arguments)
        output, _ = process.communicate(timeout=PATIENCE_S)
        assert process.returncode == code, output
        return output

    def show(self, run_id: str) -> dict:
        """`mortal show --json`."""
        return json.loads(self("show", run_id, "--json"))

    def runs_of_flow(self, run_id: str) -> list[dict]:
        """Task runs of the run's flow runs, as the server's API tells them."""
        wanted = {"flow_runs": {"name": {"any_": [f"grpo/{run_id}"]}}, "limit": 200}
        found: list[dict] = []
        with httpx.Client(base_url=self.env["PREFECT_API_URL"], timeout=30) as client:
            while True:
                page = client.post(
                    "/task_runs/filter", json={**wanted, "offset": len(found)}
                ).json()
                found += page
                if len(page) < 200:
                    return found


@pytest.fixture
def mortal(project, server):
    return Mortal(project, server.api_url)
