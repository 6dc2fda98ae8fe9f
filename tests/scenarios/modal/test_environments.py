"""Environments in Sandboxes of a control plane of Modal, beside the rollout workers' containers."""

import threading
import time

import modal
import pytest

from mortal_steps.runs.run import find_run
from tests.scenarios.modal.test_agents import train
from tests.support.modal.project import MORTAL, ON_MODAL, assert_same, at
from tests.support.paths import ROOT

AWAY = (*ON_MODAL, "compute.modal.environment.packages=['textarena==0.7.4']")
ROLLOUT = "TransformersRolloutWorker.*"
SLOW = """
    def ask(self, safe: str) -> str:
        \"\"\"Ask the clerk for the code of a safe.

        Args:
            safe: Name of the safe, three letters.
        \"\"\"
        import os, time
        print("asked in", os.environ.get("MODAL_SANDBOX_ID"), flush=True)
        time.sleep(0.3)
        return self.code if safe == self.safe else "unknown"
"""


@pytest.fixture(scope="module")
def here(plane, tmp_path_factory):
    folder = tmp_path_factory.mktemp("environments")
    train(plane, folder, "here")
    return folder


def fetched(plane, folder, run_id):
    plane.run(*MORTAL, "fetch", run_id, "--all", **at(folder))
    return find_run(folder / "runs", run_id)


def rollout_logs(plane):
    return "".join(
        plane.log(each["task"]) for each in plane.events("container_started") if "Rollout" in each["function"]
    )


def test_it_has_the_bits_of_a_run_on_this_machine(plane, here):
    began = len(plane.events("sandbox_started"))
    train(plane, here, "away", *AWAY)
    away = fetched(plane, here, "away")
    assert_same(away, find_run(here / "runs", "here"))
    assert any(row["episodes/turns"] > 1 for row in away.metrics())
    sandboxes = plane.events("sandbox_started")[began:]
    assert sandboxes
    ended = {each["sandbox"] for each in plane.events("sandbox_ended")}
    assert {each["sandbox"] for each in sandboxes[:-1]} <= ended
