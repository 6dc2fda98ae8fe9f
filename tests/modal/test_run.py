"""Runs on Modal's side of the line: the same bits as here, whatever is lost on the way."""

import json
import os
import signal
import subprocess
import sys
from collections import Counter

import pytest

from mortal_steps.run import find_run
from tests import bare_flow
from tests.modal.bare_run import drive
from tests.modal.conftest import ON_MODAL, project
from tests.modal_plane.lint import lint
from tests.modal_plane.plane import ROOT


@pytest.fixture(scope="module")
def here(tmp_path_factory):
    """The same run in this process."""
    folder = tmp_path_factory.mktemp("here")
    config = project(folder, "here")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        bare_flow.strip_prefect(patch)
        return bare_flow.go_on(config, patch)


def assert_same(run, other):
    """Weights, metrics, the chain of states."""
    assert run.manifest.final.weights_sha256 == other.manifest.final.weights_sha256
    assert run.metrics() == other.metrics()
    assert run.is_complete()


async def test_a_run_on_modal_ends_with_the_bits_of_one_here(here, plane, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.MonkeyPatch.context() as patch:
        bare_flow.strip_prefect(patch)
        run = bare_flow.open_run(project(tmp_path, "clean", *ON_MODAL))
        await drive(run)
    assert_same(find_run(tmp_path / "runs", "clean"), here)
    assert lint(plane.state()) == []
    finished = Counter(event["call"] for event in plane.events("input_started"))
    assert set(finished.values()) == {1}, "nothing was repeated"
    assert list((tmp_path / "runs/clean/calls").iterdir()) == []
    plane.wait_until(lambda: not [task for task in plane.tasks() if task["gpu"]], 10)


def test_a_killed_flow_attaches_and_lost_containers_change_nothing(here, plane, tmp_path):
    run_dir = tmp_path / "runs" / "fire"
    flow = start(plane, tmp_path)
    kill_in_call(flow, run_dir, "actor-train_step-1-0")
    waiting = json.loads((run_dir / "calls/actor-train_step-1-0.json").read_text().splitlines()[1])

    flow = start(plane, tmp_path)
    plane.wait_for("call_attached", call=waiting["call_id"])
    wait_for_step(run_dir, 2, flow)
    plane.drop_connections(3)
    plane.kill(task_of(plane, "ActorWorker.*"))
    plane.preempt(task_of(plane, "TransformersRolloutWorker.*"))
    output, _ = flow.communicate(timeout=120)
    assert flow.returncode == 0, output
    assert_same(find_run(tmp_path / "runs", "fire"), here)
    spawned = [
        event for event in plane.events("call_spawned") if "ActorWorker" in event["function"]
    ]
    assert len({event["function_id"] for event in spawned}) <= 2, "one pool for each run's actor"


def start(plane, folder):
    """The run `fire` in a process of its own."""
    command = [sys.executable, "-m", "tests.modal.bare_run", str(folder), "fire", *ON_MODAL]
    return subprocess.Popen(
        command,
        cwd=ROOT,
        env={**os.environ, **plane.env},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def kill_in_call(flow, run_dir, name):
    """Kill the flow while it waits for that call."""
    call = run_dir / "calls" / f"{name}.json"
    while not call.exists():
        assert flow.poll() is None, flow.stdout.read()
    flow.send_signal(signal.SIGKILL)
    flow.wait()
    assert call.exists()


def wait_for_step(run_dir, step, flow):
    """Until the run has done that many steps."""
    while find_run(run_dir.parent, run_dir.name).manifest.step < step:
        assert flow.poll() is None, flow.stdout.read()


def task_of(plane, function):
    """The newest container of a class."""
    return plane.tasks(function)[-1]["id"]
