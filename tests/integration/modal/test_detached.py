"""A run begun here goes on in Modal alone: detached, brought back, looked at. One that is stopped
on its way, and goes on: `make scenarios`."""

import asyncio
import contextlib
import dataclasses
import json
from collections import Counter
from types import SimpleNamespace

import pytest
from typer.testing import CliRunner

from mortal.cli import app
from mortal_steps.errors import StoreError
from mortal_steps.places.modal.files.volume import RunsVolume
from mortal_steps.places.modal.meter import container_rate
from mortal_steps.report.summary import summarize
from mortal_steps.runs.costs import COSTS, read_costs
from mortal_steps.runs.run import find_run
from tests.modal_plane.lint import lint
from tests.support.modal.detached import STOP, detach, folder, staying
from tests.support.modal.fire import ACTOR, ROLLOUT
from tests.support.modal.project import STEPS, assert_same

VOLUME = RunsVolume("mortal-runs")
__all__ = ["folder", "staying"]


@pytest.fixture(scope="module")
def moved(plane, staying, folder):
    """The run at its end, brought from the Volume, and what happened meanwhile."""
    call = detach(plane, folder)
    orchestrator = plane.wait_for("input_started", call=call)
    plane.wait_for("input_finished", call=call, timeout_s=480)
    before = len(plane.events("container_started"))
    with contextlib.chdir(folder):
        elsewhere = ["resume", "moving", "--volume=mortal-runs", "--runs-dir=elsewhere"]
        told = CliRunner().invoke(app, elsewhere).output
    return SimpleNamespace(
        run=find_run(folder / "elsewhere", "moving"),
        told=told,
        started=len(plane.events("container_started")) - before,
        call=call,
        orchestrator=orchestrator["task"],
    )


def mortal(*arguments, code=0):
    done = CliRunner().invoke(app, [*arguments, "--volume=mortal-runs"])
    assert done.exit_code == code, done.output
    return done.output


def test_it_ends_with_the_bits_of_the_run_that_stayed(moved, staying):
    assert_same(moved.run, staying)


def test_it_is_brought_from_the_volume_without_a_container(moved):
    assert "moving is complete" in moved.told
    assert moved.started == 0


def test_nobody_here_asked_for_anything(plane, moved):
    assert lint(plane.state()) == []
    spawned = plane.events("call_spawned")
    since = [one["call"] for one in spawned].index(moved.call) + 1
    for function in (ACTOR, ROLLOUT, "RewardWorker.*"):
        by = {one["by"] for one in spawned[since:] if one["function"] == function}
        assert by == {moved.orchestrator}
    later = {one["call"] for one in spawned[since:]}
    started = Counter(event["call"] for event in plane.events("input_started"))
    assert {started[call] for call in later} == {1}, "nothing was repeated"


def test_the_commands_read_on_the_volume_what_was_brought_from_there(moved):
    run = moved.run
    shown = json.loads(mortal("show", "moving", "--json"))
    assert shown == json.loads(json.dumps(dataclasses.asdict(summarize(run)))) | {
        "run_dir": "mortal-runs:/moving",
        "model_path": f"mortal-runs:/moving/{run.manifest.final.path}",
    }
    assert shown["run_id"] in [one["run_id"] for one in json.loads(mortal("runs", "--json"))]
    checked = json.loads(mortal("verify", "moving", "--json"))
    assert (checked["steps"], checked["linked"], checked["damaged"]) == (STEPS, STEPS, [])


def test_a_run_that_has_ended_cannot_be_stopped(moved):
    with pytest.raises(StoreError, match="no process drives run moving"):
        CliRunner().invoke(app, STOP, catch_exceptions=False)


def test_a_server_of_this_machine_is_refused_for_a_detached_run(moved, folder):
    loopback = {"PREFECT_API_URL": "http://127.0.0.1:4200/api"}
    with contextlib.chdir(folder):  # config.toml says that its workers are beside the flow
        detached = ["resume", "moving", "--detach", "--volume=mortal-runs"]
        refused = CliRunner().invoke(app, detached, env=loopback).exception
    assert "means another machine in a container" in str(refused)


def test_damage_on_the_volume_is_found_there(moved):
    damaged = f"moving/{moved.run.manifest.final.path}/config.json"
    whole = asyncio.run(VOLUME.read(damaged))
    asyncio.run(VOLUME.upload({damaged: b"{}"}))
    assert "config.json" in mortal("verify", "moving", code=1)
    asyncio.run(VOLUME.upload({damaged: whole}))


def test_what_it_is_said_to_cost_is_what_its_containers_lived(plane, moved):
    """By the prices of what they reserve."""
    plane.wait_until(lambda: not [task for task in plane.tasks() if task["gpu"]], 30)
    started = [event["task"] for event in plane.events("container_started")]
    later = started[started.index(moved.orchestrator) :]
    rows = [row for row in read_costs(moved.run.store.path(COSTS)) if row["container"] in later]
    own = {row["container"] for row in rows}
    ended = [event for event in plane.events("container_ended") if event["task"] in own]
    roles = {ACTOR: "actor", ROLLOUT: "rollout", "RewardWorker.*": "reward"}
    compute = moved.run.config.compute
    rates = {name: container_rate(compute, role) for name, role in roles.items()}
    lived = sum(event["seconds"] * rates[event["function"]] for event in ended)
    assert sum(row["dollars"] for row in rows) == pytest.approx(lived, rel=0.25)
    cost = summarize(moved.run).cost
    assert cost["by_kind"]["repeated"] == 0
    assert min(cost["by_kind"][kind] for kind in ("useful", "start_up", "idle")) > 0
    assert {"start_workers", "generate", "train_step"} <= set(cost["by_stage"])
