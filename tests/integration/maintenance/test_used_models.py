"""`mortal gc` and the whole models that commands have made of a run: in use, they stay."""

import multiprocessing
import os
import time
from pathlib import Path

import pytest

from mortal.maintenance.gc import carry_out, plan
from mortal_steps.plan.loader import parse_config
from mortal_steps.runs.identity import write_identity
from mortal_steps.runs.run import find_run
from mortal_steps.serving.whole import find_whole
from mortal_steps.store import RunStore
from mortal_steps.types import Problem
from tests.support.aging import age
from tests.support.saved_models import commit


@pytest.fixture
def served(tmp_path):
    """A run that goes on, whose model was served: links to weights that it may have removed."""
    store, problem = RunStore(tmp_path / "runs" / "r"), Problem(id="p", prompt="a")
    write_identity(store, parse_config({"run_id": "r"}), [problem], [], None)
    run = find_run(store.root.parent, "r")
    commit(run, "weights/v5")
    run.update(status="failed")
    serve(run).join()
    (exported,) = run.store.path("exported").glob("step-*")
    return run, exported


def serve(run, *command):
    """Start a process that makes the whole model, and becomes this command if there is one."""

    def use():
        find_whole(run, None)
        if command:
            os.execvp(command[0], command)

    process = multiprocessing.get_context("fork").Process(target=use)
    process.start()
    return process


def test_models_that_were_made_to_be_served_go_once_no_command_has_used_them_for_a_day(served):
    run, exported = served
    runs = run.store.root.parent
    assert plan(runs).items == ()
    age(exported)
    (item,) = plan(runs).items
    assert item.what.startswith(f"{exported.relative_to(runs)}, made to serve")
    assert plan(runs, keep_days=4).items == (), "--older-than says after which time"
    assert plan(runs, protected=["r"]).items == ()
    half = exported.with_name(".step-9.x.partial")
    half.mkdir()
    age(exported.parent)
    assert carry_out(plan(runs), runs, lambda line: None)
    assert not exported.exists() and not half.exists()
    assert run.store.path("weights/v5/model.safetensors").exists()
    find_whole(run, None)
    assert exported.exists()


def test_a_model_that_is_served_again_stays(served):
    run, exported = served
    runs, said = run.store.root.parent, []
    age(exported)
    planned = plan(runs)
    serve(run).join()
    assert plan(runs).items == ()
    assert not carry_out(planned, runs, said.append)
    assert "a command has used it meanwhile" in said[0]
    assert exported.exists()


def test_a_model_stays_while_the_process_lives_that_serves_it(served):
    """For days, and as another program: vLLM's server takes the command's place."""
    run, exported = served
    runs, said = run.store.root.parent, []
    age(exported)
    planned = plan(runs)
    assert len(planned.items) == 1
    server = serve(run, "sleep", "60")
    try:
        while "sleep" not in Path(f"/proc/{server.pid}/comm").read_text():
            time.sleep(0.01)
        age(exported)
        assert plan(runs).items == ()
        assert not carry_out(planned, runs, said.append)
        assert "a process uses it" in said[0] and exported.exists()
    finally:
        server.kill()
        server.join()
    assert carry_out(planned, runs, said.append)
    assert not exported.exists()


def test_models_of_a_run_that_lies_elsewhere_are_left_alone(served, tmp_path):
    """`mortal gc` does not remove such a run, so each night would end with an error."""
    run, exported = served
    linked = tmp_path / "linked"
    linked.mkdir()
    (linked / "r").symlink_to(run.store.root)
    age(exported)
    assert plan(linked).items == ()
    assert len(plan(run.store.root.parent).items) == 1
