"""Runs on a Ray cluster of three local nodes: the bits of here, whatever is killed."""

import subprocess
import sys

import pytest

from tests.support.chaos.schedule import Shot
from tests.support.chaos.variant import Variant
from tests.support.cluster.faults import Fault, faults_of, lost_head
from tests.support.cluster.nodes import PYTHON, Cluster
from tests.support.paths import ROOT

pytestmark = pytest.mark.skipif(
    not PYTHON.exists(), reason="Ray is not there; `make ray-env` installs it beside .venv"
)
STEPS = 16
HIT = (
    ("process of actor-0", "train_step"),
    ("machine of rollout-0", "generate"),
    ("head", "train_step"),
)
HIT_ALONE = (("process of actor-0", "train_step"), ("machine of actor-0", "train_step"))


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    with (
        Cluster(tmp_path_factory.mktemp("ray") / "cluster") as cluster,
        pytest.MonkeyPatch.context() as patch,
    ):
        for name, value in cluster.environment.items():
            patch.setenv(name, value)
        yield cluster


@pytest.mark.parametrize(
    ("name", "hit"), [("plain", HIT), ("sft", HIT_ALONE), ("distillation", HIT_ALONE[:1])]
)
def test_a_run_whose_worker_machine_and_head_are_killed_has_the_bits_of_a_local_one(
    cluster, killable, tmp_path, name, hit
):
    others = {"head": lost_head(cluster), **faults_of(cluster, "actor-0")}
    others |= faults_of(cluster, "rollout-0")
    variant = Variant(
        name, tmp_path, killable, STEPS, print, settings=cluster.settings, others=others
    )
    variant.reference()
    shots = [(Shot(victims=(victim,), stage=stage, moment="inside"),) for victim, stage in hit]
    judged = list(variant.under_fire(shots))
    assert sorted(kill.victim for run in judged for kill in run.outcome.kills) == sorted(
        victim for victim, _ in hit
    )
    assert [run.faults for run in judged] == [()] * len(judged)
    assert Fault.unmended == []


def test_a_run_says_what_it_waits_for_and_stops_when_it_does_not_come(cluster, tmp_path):
    settings = (*cluster.settings, "compute.local.actor.threads=64", "compute.ray.wait_s=8")
    command = ["-m", "tests.support.modal.bare_run", str(tmp_path / "wide"), "wide", *settings]
    ran = subprocess.run([sys.executable, *command], cwd=ROOT, capture_output=True, text=True)
    assert ran.returncode
    assert "actor-0 waits: no node has 64 CPUs; the cluster's nodes have " in ran.stderr
    assert "actor-0 has waited for 8 s (compute.ray.wait_s)" in ran.stderr
    assert "`mortal resume wide` continues the run" in ran.stderr
