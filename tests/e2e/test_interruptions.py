"""One run that is driven and stopped in order: two acts. A second Ctrl-C: `make scenarios`."""

import time
from types import SimpleNamespace

import httpx
import pytest

from mortal_steps.runs.run import find_run
from tests.support.command import Mortal, wait_for_step
from tests.support.deployments import PATIENCE_S
from tests.support.project import write_project
from tests.support.undisturbed import begun

ENDLESS = "training.max_steps=1000"


@pytest.fixture(scope="module")
def mortal(tmp_path_factory, server):
    folder = tmp_path_factory.mktemp("interrupted")
    write_project(folder)
    begun(folder, [ENDLESS], "busy")
    return Mortal(folder, server.api_url)


@pytest.fixture(scope="module")
def busy(mortal):
    """The process that drives the run."""
    process = mortal.start("resume", "busy")
    wait_for_step(mortal, "busy", 1, process)
    yield process
    if process.poll() is None:
        process.kill()
    process.communicate()


@pytest.fixture(scope="module")
def stopped(mortal, busy):
    """What the commands say once `mortal stop` has ended it in order."""
    told = mortal("stop", "busy")
    output, _ = busy.communicate(timeout=PATIENCE_S)
    return SimpleNamespace(told=told, output=output, code=busy.returncode, run=mortal.show("busy"))


def test_a_living_run_is_nobody_elses(mortal, busy):
    refused = mortal("resume", "busy", code=1)
    assert "run busy is in use by process" in refused and "Traceback" not in refused
    assert "continue with" not in refused, "what the other process does is not its summary"
    wanted = {"flow_runs": {"name": {"any_": ["grpo/busy"]}}}
    with httpx.Client(base_url=mortal.env["PREFECT_API_URL"], timeout=30) as client:
        assert client.post("/flow_runs/count", json=wanted).json() == 1, "none for the second one"


def test_a_server_that_gives_a_living_run_up_hears_of_it_again(mortal, busy):
    run = find_run(mortal.folder / "runs", "busy")
    flow_run_id = run.manifest.ui_url.rpartition("/")[2]
    with httpx.Client(base_url=mortal.env["PREFECT_API_URL"], timeout=30) as client:
        given_up = {"state": {"type": "CRASHED"}, "force": True}
        client.post(f"/flow_runs/{flow_run_id}/set_state", json=given_up).raise_for_status()
        deadline = time.monotonic() + PATIENCE_S
        names: list[str] = []
        while names[-2:] != ["Crashed", "Running"]:
            assert time.monotonic() < deadline, names
            states = client.get("/flow_run_states/", params={"flow_run_id": flow_run_id}).json()
            states.sort(key=lambda state: state["timestamp"])
            names = [state["name"] for state in states]
            time.sleep(0.2)


def test_a_stop_in_order_says_how_to_go_on(stopped):
    assert "busy: stopped, step" in stopped.told
    assert stopped.code == 130, stopped.output
    assert "mortal resume busy" in stopped.output
    assert "Crash detected" not in stopped.output and "ERROR" not in stopped.output


def test_a_stop_in_order_saves_the_state_and_the_reward_curve(mortal, stopped):
    assert stopped.run["status"] == "stopped"
    assert stopped.run["checkpoints"][-1] >= stopped.run["step"] >= 1
    assert (mortal.folder / "runs" / "busy" / "reward_curve.png").exists()
    assert "no process drives run busy" in mortal("stop", "busy", code=1)
