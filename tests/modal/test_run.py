"""Runs on Modal's side of the line: the same bits as here, whatever is lost on the way."""

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter

import pytest

from benchmarks.chaos.comparison import digests
from benchmarks.chaos.worker_logs import LINE
from mortal_steps.config import NewModelConfig
from mortal_steps.config.gpus import DOLLARS_PER_SECOND, WITHOUT_GPU
from mortal_steps.policy.new_model import build_model
from mortal_steps.report.costs import COSTS, read_costs
from mortal_steps.report.summary import summarize
from mortal_steps.run import find_run
from tests import bare_flow
from tests.modal.conftest import ON_MODAL, SETTINGS, STEPS, project
from tests.modal_plane.lint import lint
from tests.modal_plane.plane import ROOT

ACTOR, ROLLOUT = "ActorWorker.*", "TransformersRolloutWorker.*"
MORTAL = (sys.executable, "-m", "mortal")
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


def test_a_run_begun_here_goes_on_in_modal_alone(plane, tmp_path):
    """It begins in this process, with a model from here, and is killed after a step; then the
    command that detaches it is gone, too. Another one stays here."""
    model = ["model={}", "model.name_or_path=start", "model.max_model_len=64"]
    with bare(tmp_path) as patch:
        build_model(tmp_path / "start", SMALL, seed=3)
        staying = bare_flow.go_on(project(tmp_path, "staying", *model), patch)
        with pytest.raises(bare_flow.Killed):
            bare_flow.go_on(project(tmp_path, "moving", *model), patch, killed_after=1)
    settings = [*SETTINGS, *model, *ON_MODAL, "compute.modal.rewards=modal"]
    settings = [part for one in settings for part in ("--set", one)]
    train = ["train", "chaos.toml", "--run-id=moving", "--detach"]
    plane.run(*MORTAL, *train, *settings, **at(tmp_path))
    call = plane.events("call_spawned", function="orchestrate")[-1]["call"]
    plane.wait_for("input_finished", call=call, timeout_s=180)

    plane.run(*MORTAL, "fetch", "moving", "--runs-dir=fetched", **at(tmp_path))
    moved = find_run(tmp_path / "fetched", "moving")
    assert_same(moved, staying)
    assert lint(plane.state()) == []
    assert all(one["by"].startswith("ta-") for one in plane.events("call_spawned", function=ACTOR))
    assert plane.events("call_spawned", function="RewardWorker.*")
    started = Counter(event["call"] for event in plane.events("input_started"))
    assert set(started.values()) == {1}, "nothing was repeated"
    plane.wait_until(lambda: not [task for task in plane.tasks() if task["gpu"]], 10)
    assert_paid_for(moved, plane)


def assert_paid_for(run, plane):
    """What the run says it cost is what its containers lived, by the prices of their GPUs."""
    own = {row["container"] for row in read_costs(run.store.path(COSTS))}
    ended = [event for event in plane.events("container_ended") if event["task"] in own]
    lived = sum(
        event["seconds"] * DOLLARS_PER_SECOND.get(event["gpu"], WITHOUT_GPU) for event in ended
    )
    cost = summarize(run).cost
    assert cost["total"] == pytest.approx(lived, rel=0.25)
    assert cost["by_kind"]["repeated"] == 0
    assert min(cost["by_kind"][kind] for kind in ("useful", "start_up", "idle")) > 0
    assert {"start_workers", "generate", "train_step"} <= set(cost["by_stage"])


def test_a_run_under_fire_ends_with_the_same_bits(here, plane, tmp_path):
    """The flow is killed in a call, the rollout worker while it samples. The actor is killed in a
    train step, the line is cut, and the actor that takes the step again is preempted in it."""
    run_dir, before = tmp_path / "runs" / "fire", actor_pools(plane)
    flow = start(plane, tmp_path)
    wait_while(plane, ACTOR, "taking step 1")
    flow.kill()
    waiting = call_id(run_dir, "actor-train_step-1-0")
    assert flow.wait() == -signal.SIGKILL
    flow = start(plane, tmp_path)
    plane.wait_for("call_attached", call=waiting)

    strike(plane, ROLLOUT, "sampling steps/000002", plane.kill)
    strike(plane, ACTOR, "taking step 2", plane.kill)
    plane.drop_connections(10)
    struck = call_id(run_dir, "actor-train_step-2-0")
    strike(plane, ACTOR, "taking step 2", plane.preempt)
    output, _ = flow.communicate(timeout=180)
    assert flow.returncode == 0, output
    assert len(plane.events("input_rescheduled", call=struck)) == 2, "one call outlives them all"
    assert len(plane.events("input_finished", call=struck)) == 1
    assert_never_two(plane, actor_pools(plane) - before)
    plane.run(*MORTAL, "fetch", "fire", "--runs-dir=fetched", "--all", **at(tmp_path))
    assert digests(tmp_path / "fetched/fire", STEPS) == digests(here.store.root, STEPS)


def strike(plane, function, doing, blow):
    """Hit a container in the middle of that."""
    task = wait_while(plane, function, doing)
    blow(task)
    plane.wait_for("container_ended", task=task)
    assert last_word(plane, task).startswith(doing), "it was over before"


def wait_while(plane, function, doing):
    """Until the container of that class is about what its log then says; that container."""
    deadline = time.monotonic() + 90
    while True:
        started = [e["task"] for e in plane.events("container_started", function=function)]
        ended = [e["task"] for e in plane.events("container_ended", function=function)]
        for task in set(started[-1:]).difference(ended):
            if last_word(plane, task).startswith(doing):
                return task
        assert time.monotonic() < deadline, f"no {function} is {doing}"
        time.sleep(0.002)


def last_word(plane, task):
    """The last thing that a worker has logged."""
    said = LINE.findall(plane.log(task))
    return said[-1][-1] if said else ""


def call_id(run_dir, name):
    """Modal's name of a call that the flow waits for."""
    return json.loads((run_dir / "calls" / f"{name}.json").read_text().splitlines()[1])["call_id"]


def assert_never_two(plane, pools):
    """One pool of actors, and each of its containers ended before the next one started."""
    (pool,) = pools
    ends = {"container_started", "container_ended"}
    lives = [event for event in plane.events(function_id=pool) if event["kind"] in ends]
    assert len(lives) >= 5
    for number, event in enumerate(lives):
        assert event["kind"].endswith("ended" if number % 2 else "started")


def actor_pools(plane):
    """The pools that calls of actors went to: each is of one container at most."""
    spawned = plane.events("call_spawned", function=ACTOR)
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


def at(folder):
    """How a user's command is run in their folder."""
    return {"cwd": folder, "env": {"PREFECT_API_URL": ""}}
