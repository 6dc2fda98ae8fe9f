"""The Prefect server is killed in mid-run: it comes back, or it does not."""

import asyncio
import os
import subprocess
import sys
import time

import httpx
import pytest

from mortal_flows.stage_process import FlowCall, StageProcess
from mortal_steps.runs.run import find_run
from tests.support.command import Mortal, wait_for_step
from tests.support.deployments import PATIENCE_S
from tests.support.project import write_project
from tests.support.task_runs import stages_of_step, stages_shown
from tests.support.undisturbed import assert_same, begun, undisturbed

STEPS = 240
"""So many that the run has not ended while its server is away, on a fast machine either."""
AFTER_THE_SECOND_KILL = STEPS - 30


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("away")
    write_project(folder)
    return folder


def start(mortal, run_id, patience_s, save_steps):
    """A run whose flow waits so long for its server."""
    settings = {
        "training.max_steps": STEPS,
        "logging.server_timeout_s": patience_s,
        "checkpoints.save_steps": save_steps,
        "logging.segment_steps": 3,
    }
    begun(mortal.folder, [f"{key}={value}" for key, value in settings.items()], run_id)
    return mortal.start("resume", run_id)


@pytest.fixture(scope="module")
def whole(folder):
    return undisturbed(folder, [f"training.max_steps={STEPS}"])


def test_a_run_goes_on_without_its_server_and_is_shown_when_that_comes_back(
    folder, whole, killable
):
    """What a killed server had received and not written down is missing from its pages alone."""
    mortal = Mortal(folder, killable.api_url)
    process = start(mortal, "missed", patience_s=300, save_steps=2)
    for step in (4, 8):
        wait_for_step(mortal, "missed", step, process)
        killable.kill()
        time.sleep(3)
        killable.start()
    output, _ = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 0, output
    assert "answers again after" in output
    assert_same(folder, "missed", whole)
    runs = {run["name"]: run["state_type"] for run in mortal.runs_of_flow("missed")}
    assert runs["save_final"] == "COMPLETED"
    told = stages_shown(name for name, state in runs.items() if state == "COMPLETED")
    for step in range(AFTER_THE_SECOND_KILL, STEPS):
        assert stages_of_step(step) <= told and told["sync_weights", step] >= 1


def test_a_run_whose_server_is_killed_when_it_ends_completes(folder, killable):
    """It comes back before the run has noticed."""
    mortal = Mortal(folder, killable.api_url)
    process = start(mortal, "late", patience_s=300, save_steps=STEPS)
    wait_for_step(mortal, "late", STEPS, process)
    killable.kill()
    killable.start()
    output, _ = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 0, output
    wanted = {"flow_runs": {"tags": {"all_": ["run:late"]}}}
    with httpx.Client(base_url=killable.api_url, timeout=30) as client:
        shown = client.post("/flow_runs/filter", json=wanted).json()
    assert {each["state_type"] for each in shown} == {"COMPLETED"}


def test_a_run_that_completes_without_its_server_says_so(folder, killable):
    mortal = Mortal(folder, killable.api_url)
    process = start(mortal, "untold", patience_s=2, save_steps=STEPS)
    wait_for_step(mortal, "untold", STEPS, process)
    killable.kill()
    output, _ = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 1, output
    error = output[output.index("error: ") :]
    assert "run untold has completed: `mortal show untold`" in error
    assert find_run(folder / "runs", "untold").is_complete()
    killable.start()


def test_without_its_server_a_run_checkpoints_and_ends(folder, whole, killable):
    mortal = Mortal(folder, killable.api_url)
    process = start(mortal, "alone", patience_s=2, save_steps=STEPS)
    wait_for_step(mortal, "alone", 4, process)
    killable.kill()
    killed = time.monotonic()
    output, _ = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 1, output
    assert time.monotonic() - killed < 40, output
    error = output[output.index("error: ") :]
    where = (killable.api_url, "has not answered for", "server_timeout_s is 2")
    for part in (*where, "is saved, continue with `mortal resume alone`"):
        assert part in error
    assert "Traceback" not in error
    run = find_run(folder / "runs", "alone")
    assert 4 <= run.manifest.step < STEPS
    assert run.manifest.checkpoints[-1].step == run.manifest.step
    killable.start()
    undisturbed(folder, run.config.model_dump(), "alone")  # goes on with it
    assert_same(folder, "alone", whole)


FLOW_ALONE = """
from pathlib import Path
from mortal.driver import _run_flow
from mortal.server.files import Server
from mortal_steps.plan.loader import load_config
from mortal_steps.errors import ServerError
from mortal_steps.orchestration.open_run import create_run
from mortal_steps.runs.run import find_run

config = load_config(Path("tiny.toml")).model_copy(update={"run_id": "early"})
create_run(Path("runs/early"), config, [], [])
run = find_run(Path("runs"), "early")
try:
    _run_flow(run, Server(api_url="http://127.0.0.1:9/api"))
except ServerError as error:
    print(error)
"""


def test_a_server_lost_before_the_flow_begins_is_named(folder):
    nobody = {"PREFECT_API_URL": "http://127.0.0.1:9/api", "PREFECT_CLIENT_MAX_RETRIES": "0"}
    output = subprocess.check_output(
        [sys.executable, "-c", FLOW_ALONE], cwd=folder, env={**os.environ, **nobody}, text=True
    )
    assert "server at http://127.0.0.1:9/api went away" in output
    assert "continue with `mortal resume early`" in output


def test_a_stage_of_a_recipe_that_begins_while_the_server_is_away_waits_for_it(
    tmp_path, killable, monkeypatch
):
    text = "from prefect import flow\n\n@flow\ndef work():\n    open('done', 'w').close()\n"
    (tmp_path / "of_a_stage.py").write_text(text)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path), prepend=os.pathsep)
    monkeypatch.setenv("PREFECT_API_URL", killable.api_url)
    killable.kill()
    call = FlowCall(flow="of_a_stage:work", parameters={}, context={})
    process = StageProcess(call, tmp_path / "stage.log", deployed=False)
    time.sleep(15)  # it begins within a few
    assert not (tmp_path / "done").exists()
    killable.start()
    assert asyncio.run(process.ended()) is None
    assert (tmp_path / "done").exists()
