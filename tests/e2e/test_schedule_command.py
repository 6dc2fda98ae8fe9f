"""The command `mortal schedule`, killed or stopped while a run goes, mostly with a server of its
own."""

import os
import signal

import pytest

from mortal_steps.runs.run import find_run
from tests.support.command import assert_saved, wait_for_step
from tests.support.deployments import PATIENCE_S
from tests.support.project import write_project
from tests.support.schedule import Schedule

SETTINGS = ("logging.segment_steps=1", "evaluation.eval_steps=0")


def begin(schedule):
    """Request a run, and wait until it has begun to train; its id."""
    run_id = f"tiny-{schedule.request().replace('-', '')[-12:]}"
    wait_for_step(schedule, run_id, 2)
    return run_id


@pytest.fixture
def schedule(tmp_path):
    write_project(tmp_path)
    started = []

    def start(steps, api_url=None):
        settings = (*SETTINGS, f"training.max_steps={steps}")
        deployment = "grpo-train/tiny"
        started.append(Schedule(tmp_path, "tiny.toml", deployment, settings, api_url))
        return started[0]

    yield start
    for each in started:
        each.end()


def test_a_run_outlasts_its_schedule_and_its_server(schedule):
    """Both are killed. The run's process starts the server again, which ends with the run."""
    killed = schedule(15)
    run_id, server = begin(killed), killed.server()["process"]["pid"]
    killed.process.kill()
    os.kill(server, signal.SIGKILL)
    wait_for_step(killed, run_id, 15)
    assert killed.ended_as(f"grpo/{run_id}") == "Completed"
    assert find_run(killed.folder / "runs", run_id).is_complete()


def test_stopped_at_its_terminal_it_saves_the_run_in_few_words(schedule):
    stopped = schedule(1000)
    run_id = begin(stopped)
    os.write(stopped.terminal, b"\x03")
    while stopped.read():
        pass
    assert stopped.process.wait(PATIENCE_S) == 0
    said = stopped.said.decode().partition("stopping; a run in progress")[2]
    assert f"state saved; continue with `mortal resume {run_id}`" in " ".join(said.split())
    assert "Traceback" not in said
    assert "ERROR" not in said
    assert_saved(find_run(stopped.folder / "runs", run_id), 2)
    assert stopped.ended_as(f"grpo/{run_id}") == "Cancelled"


def test_a_run_is_saved_when_the_terminal_of_its_schedule_goes_away(
    schedule, server, tmp_path, monkeypatch
):
    """It is in the folder that the environment names for all commands."""
    file = tmp_path / "tiny.toml"
    file.write_text(f'runs_dir = "elsewhere"\n{file.read_text()}')
    monkeypatch.setenv("MORTAL_RUNS_DIR", "runs")
    left = schedule(1000, server.api_url)
    run_id = begin(left)
    left.hang_up()
    assert left.process.wait(PATIENCE_S) == 0
    assert_saved(find_run(left.folder / "runs", run_id), 2)
    assert left.ended_as(f"grpo/{run_id}") == "Cancelled"
