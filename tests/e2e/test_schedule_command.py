"""The command `mortal schedule`, killed or stopped while a run goes, mostly with a server of its
own."""

import contextlib
import fcntl
import json
import os
import signal
import sqlite3
import subprocess
import sys
import time
from termios import TIOCSCTTY

import httpx
import pytest

from mortal_steps.runs.run import find_run
from tests.support.command import ENDED, assert_saved, wait_for_step
from tests.support.deployments import PATIENCE_S
from tests.support.project import write_project

SETTINGS = ("logging.segment_steps=1", "evaluation.eval_steps=0")


class Schedule:
    """`mortal schedule` at a terminal that can go away."""

    def __init__(self, folder, steps, api_url=None):
        """`api_url`: of a server that is there; without one it starts its own."""
        self.folder = folder
        self.state = folder / "state"
        self.api_url = api_url
        self.said = b""
        self.terminal, theirs = os.openpty()
        settings = [("--set", each) for each in (*SETTINGS, f"training.max_steps={steps}")]
        environment = {k: v for k, v in os.environ.items() if not k.startswith("PREFECT")}
        environment |= {"PREFECT_API_URL": api_url} if api_url else {}
        self.process = subprocess.Popen(
            [sys.executable, "-m", "mortal", "schedule", "tiny.toml", *sum(settings, ())],
            cwd=folder,
            env={**environment, "MORTAL_STATE_DIR": str(self.state), "OMP_NUM_THREADS": "1"},
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            start_new_session=True,
            preexec_fn=lambda: fcntl.ioctl(0, TIOCSCTTY, 0),
        )
        os.close(theirs)

    def read(self):
        """The next of what it prints; nothing once nobody has the terminal open."""
        with contextlib.suppress(OSError):
            got = os.read(self.terminal, 10_000)
            self.said += got
            return got
        return b""

    def read_until(self, text):
        while text not in self.said:
            assert self.read(), self.said.decode()

    def server(self):
        return json.loads((self.state / "prefect/server.json").read_text())

    def begin(self):
        """Request a run; its id, and that of its flow run."""
        self.read_until(b"serving grpo-train/tiny-resume")
        api_url = self.api_url or self.server()["api_url"]
        with httpx.Client(base_url=api_url, trust_env=False, timeout=60) as http:
            deployment = http.get("/deployments/name/grpo-train/tiny").json()["id"]
            wanted = {"state": {"type": "SCHEDULED"}}
            made = http.post(f"/deployments/{deployment}/create_flow_run", json=wanted).json()
        run_id = f"tiny-{made['id'].replace('-', '')[-12:]}"
        wait_for_step(self, run_id, 2)
        return run_id

    def ended_as(self, run_id):
        """The state of the run's flow run in the database of its own server, which has ended, or
        as the other one tells it."""
        deadline = time.monotonic() + PATIENCE_S
        if self.api_url:
            wanted = {"flow_runs": {"name": {"any_": [f"grpo/{run_id}"]}}}
            while time.monotonic() < deadline:
                told = httpx.post(f"{self.api_url}/flow_runs/filter", json=wanted, timeout=60)
                if told.json()[0]["state_type"] in ENDED:
                    break
                time.sleep(0.2)
            return told.json()[0]["state_name"]
        while (self.state / "prefect/server.json").exists():
            assert time.monotonic() < deadline, "the server goes on"
            time.sleep(0.2)
        with contextlib.closing(sqlite3.connect(self.state / "prefect/prefect.db")) as database:
            wanted = "select state_name from flow_run where name = ?"
            ((state,),) = database.execute(wanted, (f"grpo/{run_id}",)).fetchall()
        return state


@pytest.fixture
def schedule(tmp_path):
    write_project(tmp_path)
    started = []

    def start(steps, api_url=None):
        started.append(Schedule(tmp_path, steps, api_url))
        return started[0]

    yield start
    for each in started:
        each.process.kill()
        each.process.wait()
        with contextlib.suppress(OSError):
            os.close(each.terminal)


def test_a_run_outlasts_its_schedule_and_its_server(schedule):
    """Both are killed. The run's process starts the server again, which ends with the run."""
    killed = schedule(15)
    run_id, server = killed.begin(), killed.server()["process"]["pid"]
    killed.process.kill()
    os.kill(server, signal.SIGKILL)
    wait_for_step(killed, run_id, 15)
    assert killed.ended_as(run_id) == "Completed"
    assert find_run(killed.folder / "runs", run_id).is_complete()


def test_stopped_at_its_terminal_it_saves_the_run_in_few_words(schedule):
    stopped = schedule(1000)
    run_id = stopped.begin()
    os.write(stopped.terminal, b"\x03")
    while stopped.read():
        pass
    assert stopped.process.wait(PATIENCE_S) == 0
    said = stopped.said.decode().partition("stopping; a run in progress")[2]
    assert f"state saved; continue with `mortal resume {run_id}`" in " ".join(said.split())
    assert "Traceback" not in said
    assert "ERROR" not in said
    assert_saved(find_run(stopped.folder / "runs", run_id), 2)
    assert stopped.ended_as(run_id) == "Cancelled"


def test_a_run_is_saved_when_the_terminal_of_its_schedule_goes_away(schedule, server):
    left = schedule(1000, server.api_url)
    run_id = left.begin()
    os.close(left.terminal)
    assert left.process.wait(PATIENCE_S) == 0
    assert_saved(find_run(left.folder / "runs", run_id), 2)
    assert left.ended_as(run_id) == "Cancelled"
