"""A run whose flow is killed and whose actor is preempted: the same bits as here."""

import json
from dataclasses import replace

import pytest

from mortal_steps.errors import LeaseLostError
from mortal_steps.orchestration.open_run import open_run
from mortal_steps.places.modal.deployed import worker_of
from mortal_steps.runs.run import find_run
from mortal_steps.store.files import digest_file
from mortal_steps.types import FileRef
from tests.support import bare_flow
from tests.support.chaos.comparison import digests
from tests.support.modal.fire import ACTOR, Fire
from tests.support.modal.project import MORTAL, ON_MODAL, STEPS, at, project
from tests.support.modal.requests import REQUEST


@pytest.fixture(scope="module")
def fire(here, plane, tmp_path_factory):
    """A run whose flow is killed in a call and comes back, and whose actor is preempted in a train
    step; hit all over by `make chaos-modal`."""
    folder = tmp_path_factory.mktemp("fire")
    with bare_flow.bare_in(folder):
        open_run(project(folder, "fire", *ON_MODAL))
    fire = Fire(plane, folder, "fire")
    fire.wait_while(ACTOR, "taking step 1")
    fire.kill_flow()
    fire.waiting = call_id(fire, "actor-train_step-1-0")
    fire.start()
    plane.wait_for("call_attached", call=fire.waiting)
    fire.asked_late = ask_with_an_old_lease(fire)
    fire.wait_while(ACTOR, "taking step 2")
    fire.struck = call_id(fire, "actor-train_step-2-0")
    fire.in_time = fire.strike(ACTOR, "taking step 2", plane.preempt)
    fire.finish()
    return fire


def test_a_call_outlives_the_flow_that_asked_it(plane, fire):
    assert len(plane.events("input_finished", call=fire.waiting)) == 1
    assert plane.events("input_rescheduled", call=fire.waiting) == []


def test_a_call_outlives_a_container_that_is_preempted_in_it(plane, fire):
    assert fire.in_time
    assert len(plane.events("input_rescheduled", call=fire.struck)) == 1
    assert len(plane.events("input_finished", call=fire.struck)) == 1
    assert fire.actors_follow_each_other()


def test_what_is_asked_under_a_lease_that_is_lost_is_refused(fire):
    with pytest.raises(LeaseLostError, match=r"lease 2 .* lease 1"):
        raise fire.asked_late.get().error


def test_a_run_under_fire_ends_with_the_same_bits(plane, here, fire, tmp_path):
    folder = fire.run_dir.parents[1]
    plane.run(*MORTAL, "fetch", "fire", "--runs-dir=fetched", "--all", **at(folder))
    assert digests(folder / "fetched/fire", STEPS) == digests(here.store.root, STEPS)


def ask_with_an_old_lease(fire):
    """What a flow would that slept while another one took its run over; Modal's call."""
    run = find_run(fire.run_dir.parent, "fire")
    (settings,) = fire.run_dir.glob("settings/*.json")
    reference = FileRef(path=f"settings/{settings.name}", sha256=digest_file(settings))
    request = replace(REQUEST, settings=reference, method="save_final", payload={})
    return worker_of(run.config.compute, run.config.rollout, "actor", "fire", 0).call.spawn(request)


def call_id(fire, name):
    """Modal's name of a call that the flow waits for."""
    record = fire.run_dir / "calls" / f"{name}.json"
    return json.loads(record.read_text().splitlines()[1])["call_id"]
