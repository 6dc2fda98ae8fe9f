"""Starts that are killed leave nothing, and the next run goes through, whose server is killed, too.

All with a password on the server, protection against forged requests, and a proxy that reaches
nothing.
"""

import os
import signal

import httpx
import pytest

from mortal.server.files import living_server
from tests.support.command import wait_for_step
from tests.support.deployments import PATIENCE_S
from tests.support.killed_starts import Ground
from tests.support.project import write_project
from tests.support.task_runs import stages_of_step, stages_shown
from tests.support.undisturbed import begun

PASSWORD = "me:secret"
STEPS = 8


@pytest.fixture(scope="module")
def ground(tmp_path_factory):
    folder = tmp_path_factory.mktemp("ground")
    ground = Ground(folder, write_project(folder).name, f"training.max_steps={STEPS}")
    ground.env |= {
        "PREFECT_SERVER_API_AUTH_STRING": PASSWORD,
        "PREFECT_SERVER_CSRF_PROTECTION_ENABLED": "true",
        "http_proxy": "http://127.0.0.1:9",
    }
    begun(folder, [f"training.max_steps={STEPS}"], "again")
    return ground


@pytest.mark.parametrize(
    ("run_id", "sign", "after_s"),
    [
        ("new", signal.SIGKILL, 2.5),
        ("new", signal.SIGHUP, 3),
        ("again", signal.SIGINT, 1.5),
        ("again", signal.SIGTERM, 4),
    ],
)
def test_a_start_that_is_ended_leaves_nothing(ground, run_id, sign, after_s):
    """`train` in its preflight, `resume` while the server starts."""
    outcome = ground.strike(run_id, sign, after_s)
    assert outcome["left"] == [], outcome


def task_runs(api_url, run_id):
    wanted = {"flow_runs": {"tags": {"all_": [f"run:{run_id}"]}}, "limit": 200}
    user, _, password = PASSWORD.partition(":")
    with httpx.Client(auth=(user, password), trust_env=False) as client:
        client.headers["Prefect-Csrf-Client"] = "test"
        token = client.get(f"{api_url}/csrf-token", params={"client": "test"}).json()["token"]
        client.headers["Prefect-Csrf-Token"] = token
        return client.post(f"{api_url}/task_runs/filter", json=wanted).json()


def test_the_next_run_goes_through_and_its_server_comes_back(ground):
    looking = ground.mortal("server")
    process = ground.start("next")
    wait_for_step(ground, "next", 3, process)
    first = living_server(ground.server_home).process
    os.kill(first.pid, signal.SIGKILL)
    output, _ = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 0, output
    server = living_server(ground.server_home)
    assert server.process != first
    found = task_runs(server.api_url, "next")
    told = stages_shown(run["name"] for run in found if run["state_type"] == "COMPLETED")
    assert stages_of_step(STEPS - 1) <= told
    looking.send_signal(signal.SIGINT)
    looking.communicate(timeout=PATIENCE_S)
    assert ground.wait_until_nothing_is_left("next") == [], output
