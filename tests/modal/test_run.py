"""Runs on Modal's side of the line: the same bits as here, whatever is lost on the way."""

import asyncio
import contextlib
import dataclasses
import json
import sys
from collections import Counter

import pytest
from typer.testing import CliRunner

from benchmarks.chaos.comparison import digests
from benchmarks.modal_chaos import ACTOR, ON_MODAL, ROLLOUT, Fire
from mortal.cli import app
from mortal_steps.compute.modal.deployed import worker_of
from mortal_steps.compute.modal.host import Order
from mortal_steps.compute.modal.release import this_release
from mortal_steps.compute.modal.volume import RunsVolume
from mortal_steps.compute.modal.volume_lease import find_lease
from mortal_steps.config import NewModelConfig
from mortal_steps.config.gpus import DOLLARS_PER_SECOND, WITHOUT_GPU
from mortal_steps.errors import LeaseLostError, RunStoppedError, StoreError
from mortal_steps.policy.new_model import build_model
from mortal_steps.report.summary import summarize
from mortal_steps.runs.costs import COSTS, read_costs
from mortal_steps.runs.run import find_run
from mortal_steps.store.files import digest_file
from mortal_steps.types import FileRef
from tests import bare_flow
from tests.modal.conftest import SETTINGS, STEPS, bare, project
from tests.modal_plane.lint import lint

VOLUME = RunsVolume("mortal-runs")
MORTAL = (sys.executable, "-m", "mortal")
SMALL = NewModelConfig(hidden_size=32, num_layers=1, intermediate_size=32)


def assert_same(run, other):
    """Weights, metrics, the chain of states."""
    assert run.manifest.final.weights_sha256 == other.manifest.final.weights_sha256
    assert run.metrics() == other.metrics()
    assert run.is_complete()


def test_a_run_begun_here_goes_on_in_modal_alone(plane, tmp_path):
    """It begins in this process, with a model from here, and is killed after a step; then the
    commands that detach it, stop it and detach it again are gone, too. Another one stays here."""
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
    plane.wait_until(lambda: asyncio.run(find_lease(VOLUME, "moving")) is not None)
    stop = ["stop", "moving", "--volume=mortal-runs"]
    assert "stopped by `mortal stop` on" in plane.run(*MORTAL, *stop, **at(tmp_path))
    stopped = plane.events("call_spawned", function="orchestrate")[-1]["call"]
    plane.wait_for("input_finished", call=stopped)
    with pytest.raises(StoreError, match="no process drives run moving on Modal"):
        CliRunner().invoke(app, stop, catch_exceptions=False)
    plane.wait_until(lambda: not [task for task in plane.tasks() if task["gpu"]], 30)

    plane.run(*MORTAL, *train, *settings, **at(tmp_path))
    call = plane.events("call_spawned", function="orchestrate")[-1]["call"]
    orchestrator = plane.wait_for("input_started", call=call)
    plane.wait_for("input_finished", call=call, timeout_s=480)

    before = len(plane.events("container_started"))
    with contextlib.chdir(tmp_path):
        elsewhere = ["resume", "moving", "--volume=mortal-runs", "--runs-dir=elsewhere"]
        assert "moving is complete" in CliRunner().invoke(app, elsewhere).output
    moved = find_run(tmp_path / "elsewhere", "moving")
    assert_same(moved, staying)
    assert len(plane.events("container_started")) == before
    look_at_it_from_anywhere(moved, tmp_path)
    assert lint(plane.state()) == []
    spawned = plane.events("call_spawned")
    since = [one["call"] for one in spawned].index(call) + 1
    for function in (ACTOR, ROLLOUT, "RewardWorker.*"):
        by = {one["by"] for one in spawned[since:] if one["function"] == function}
        assert by == {orchestrator["task"]}, "nobody here asked for anything"
    started = Counter(event["call"] for event in plane.events("input_started"))
    assert set(started.values()) == {1}, "nothing was repeated"
    plane.wait_until(lambda: not [task for task in plane.tasks() if task["gpu"]], 30)
    assert_paid_for(moved, plane, since=orchestrator["task"])


def look_at_it_from_anywhere(run, folder):
    """The commands that read a run: what is on the Volume is what was brought from there."""

    def mortal(*arguments, code=0):
        done = CliRunner().invoke(app, [*arguments, "--volume=mortal-runs"])
        assert done.exit_code == code, done.output
        return done.output

    shown = json.loads(mortal("show", "moving", "--json"))
    here = dataclasses.asdict(summarize(run))
    assert shown == here | {
        "run_dir": "mortal-runs:/moving",
        "model_path": f"mortal-runs:/moving/{run.manifest.final.path}",
    }
    assert shown["run_id"] in [one["run_id"] for one in json.loads(mortal("runs", "--json"))]
    checked = json.loads(mortal("verify", "moving", "--json"))
    assert (checked["steps"], checked["linked"], checked["damaged"]) == (STEPS, STEPS, [])
    loopback = {"PREFECT_API_URL": "http://127.0.0.1:4200/api"}
    with contextlib.chdir(folder):  # config.toml says that its workers are beside the flow
        detached = ["resume", "moving", "--detach", "--volume=mortal-runs"]
        refused = CliRunner().invoke(app, detached, env=loopback).exception
    assert "means another machine in a container" in str(refused)
    damaged = f"moving/{run.manifest.final.path}/config.json"
    whole = asyncio.run(VOLUME.read(damaged))
    asyncio.run(VOLUME.upload({damaged: b"{}"}))
    assert "config.json" in mortal("verify", "moving", code=1)
    asyncio.run(VOLUME.upload({damaged: whole}))


def assert_paid_for(run, plane, since):
    """What the run says its containers cost after that one is what they lived, by the prices of
    their GPUs. What those did that were stopped, nobody was left to hear."""
    started = [event["task"] for event in plane.events("container_started")]
    later = started[started.index(since) :]
    rows = [row for row in read_costs(run.store.path(COSTS)) if row["container"] in later]
    own = {row["container"] for row in rows}
    ended = [event for event in plane.events("container_ended") if event["task"] in own]
    rates = {"": WITHOUT_GPU, **DOLLARS_PER_SECOND}
    lived = sum(event["seconds"] * rates[event["gpu"]] for event in ended)
    assert sum(row["dollars"] for row in rows) == pytest.approx(lived, rel=0.25)
    cost = summarize(run).cost
    assert cost["by_kind"]["repeated"] == 0
    assert min(cost["by_kind"][kind] for kind in ("useful", "start_up", "idle")) > 0
    assert {"start_workers", "generate", "train_step"} <= set(cost["by_stage"])


def test_a_run_that_has_cost_enough_stops_with_its_state_saved(tmp_path):
    config = project(tmp_path, "dear", "compute.modal.max_cost=3")
    with bare(tmp_path) as patch:
        paid = iter([1.0, 2.0, 3.5])  # asked before each step
        patch.setattr(bare_flow.InProcess, "spent", lambda self: next(paid))
        with pytest.raises(RunStoppedError, match=r"= 3 dollars \(3.50 spent\) after 2 of 4"):
            bare_flow.go_on(config, patch)
    assert find_run(tmp_path / "runs", "dear").manifest.checkpoints[-1].step == 2


def test_a_run_under_fire_ends_with_the_same_bits(here, plane, tmp_path):
    """The flow is killed in a call, the rollout worker while it samples. The actor is killed in a
    train step, the line is cut, and the actor that takes the step again is preempted in it."""
    fire = Fire(plane, tmp_path, "fire")
    fire.wait_while(ACTOR, "taking step 1")
    fire.kill_flow()
    waiting = call_id(fire, "actor-train_step-1-0")
    fire.start()
    plane.wait_for("call_attached", call=waiting)
    asked_late = ask_with_an_old_lease(fire)

    assert fire.strike(ROLLOUT, "sampling steps/000002", plane.kill)
    assert fire.strike(ACTOR, "taking step 2", plane.kill)
    plane.drop_connections(10)
    struck = call_id(fire, "actor-train_step-2-0")
    assert fire.strike(ACTOR, "taking step 2", plane.preempt)
    fire.finish()
    with pytest.raises(LeaseLostError, match="holds its lease 2 on Modal; this is asked with lea"):
        raise asked_late.get().error
    assert len(plane.events("input_rescheduled", call=struck)) == 2, "one call outlives them all"
    assert len(plane.events("input_finished", call=struck)) == 1
    assert fire.actors_follow_each_other()
    plane.run(*MORTAL, "fetch", "fire", "--runs-dir=fetched", "--all", **at(tmp_path))
    assert digests(tmp_path / "fetched/fire", STEPS) == digests(here.store.root, STEPS)


def ask_with_an_old_lease(fire):
    """What a flow would that slept while another one took its run over; Modal's call."""
    run = find_run(fire.run_dir.parent, "fire")
    (settings,) = fire.run_dir.glob("settings/*.json")
    order = Order(
        release=this_release(),
        volume=VOLUME.name,
        lease=1,
        settings=FileRef(path=f"settings/{settings.name}", sha256=digest_file(settings)),
        role="actor",
        method="save_final",
        payload={},
        label="save_final/4/0",
    )
    return worker_of(run.config, "actor", "fire", 0).call.spawn(order)


def call_id(fire, name):
    """Modal's name of a call that the flow waits for."""
    record = fire.run_dir / "calls" / f"{name}.json"
    return json.loads(record.read_text().splitlines()[1])["call_id"]


def at(folder):
    """How a user's command is run in their folder."""
    return {"cwd": folder, "env": {"PREFECT_API_URL": ""}}
