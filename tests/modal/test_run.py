"""Runs on Modal's side of the line: the same bits as here, whatever is lost on the way."""

import contextlib
import json
import os
import signal
import subprocess
import sys
from collections import Counter

import pytest

from mortal_steps.config import NewModelConfig
from mortal_steps.config.gpus import DOLLARS_PER_SECOND
from mortal_steps.policy.new_model import build_model
from mortal_steps.report.costs import COSTS, read_costs
from mortal_steps.report.summary import summarize
from mortal_steps.run import find_run
from tests import bare_flow
from tests.modal.conftest import ON_MODAL, project
from tests.modal_plane.lint import lint
from tests.modal_plane.plane import ROOT

SMALL = NewModelConfig(hidden_size=32, num_layers=1, intermediate_size=32)


@pytest.fixture(scope="module")
def here(tmp_path_factory):
    """The same run in this process."""
    folder = tmp_path_factory.mktemp("here")
    with bare(folder) as patch:
        return bare_flow.go_on(project(folder, "here"), patch)


@contextlib.contextmanager
def bare(folder):
    """The flow's loop without Prefect, in the folder; local workers are in this process."""
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        bare_flow.strip_prefect(patch)
        yield patch


def assert_same(run, other):
    """Weights, metrics, the chain of states."""
    assert run.manifest.final.weights_sha256 == other.manifest.final.weights_sha256
    assert run.metrics() == other.metrics()
    assert run.is_complete()


def test_a_run_goes_on_on_modal_with_a_model_from_here(plane, tmp_path):
    """It begins in this process, and is killed after a step; another one does not move."""
    model = ["model={}", "model.name_or_path=start", "model.max_model_len=64"]
    with bare(tmp_path) as patch:
        build_model(tmp_path / "start", SMALL, seed=3)
        staying = bare_flow.go_on(project(tmp_path, "staying", *model), patch)
        with pytest.raises(bare_flow.Killed):
            bare_flow.go_on(project(tmp_path, "moving", *model), patch, killed_after=1)
        moving = bare_flow.go_on(project(tmp_path, "moving", *model, *ON_MODAL), patch)
    assert_same(moving, staying)
    assert lint(plane.state()) == []
    started = Counter(event["call"] for event in plane.events("input_started"))
    assert set(started.values()) == {1}, "nothing was repeated"
    assert list(moving.store.path("calls").iterdir()) == [], "nothing is left to attach to"
    plane.wait_until(lambda: not [task for task in plane.tasks() if task["gpu"]], 10)
    assert_paid_for(moving, plane)


def assert_paid_for(run, plane):
    """What the run says it cost is what its containers lived, by the prices of their GPUs."""
    own = {row["container"] for row in read_costs(run.store.path(COSTS))}
    ended = [event for event in plane.events("container_ended") if event["task"] in own]
    lived = sum(event["seconds"] * DOLLARS_PER_SECOND[event["gpu"]] for event in ended)
    cost = summarize(run).cost
    assert cost["total"] == pytest.approx(lived, rel=0.25)
    assert cost["by_kind"]["repeated"] == 0
    assert min(cost["by_kind"][kind] for kind in ("useful", "start_up", "idle")) > 0
    assert {"start_workers", "generate", "train_step"} <= set(cost["by_stage"])


def test_a_killed_flow_attaches_and_lost_containers_change_nothing(here, plane, tmp_path):
    run_dir, before = tmp_path / "runs" / "fire", actor_pools(plane)
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
    assert len(actor_pools(plane) - before) == 1, "never a second actor"


def actor_pools(plane):
    """The pools that calls of actors went to: each is of one container at most."""
    spawned = plane.events("call_spawned", function="ActorWorker.*")
    return {event["function_id"] for event in spawned}


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
