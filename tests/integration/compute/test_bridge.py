"""Bridges to a Ray cluster that do not answer, and to a single node; runs are in the scenarios."""

import secrets
import shutil
import subprocess

import pytest

from mortal_steps.compute.base import WorkerSpec
from mortal_steps.errors import ComputeError, MortalError
from mortal_steps.places.ray import compute
from mortal_steps.places.ray.compute import RayContainer
from mortal_steps.plan.loader import parse_config
from mortal_steps.runs.lease import acquire
from mortal_steps.runs.run import Run
from mortal_steps.store import RunStore
from tests.support.cluster.nodes import PYTHON
from tests.support.paths import ROOT
from tests.support.run_info import run_info

SPEC = WorkerSpec(factory="nowhere:Nobody", kwargs={})


NODE = """
import ray, sys
started = ray.init(
    num_cpus=1,
    num_gpus=1,
    resources={"accelerator_type:H100": 1},
    object_store_memory=80_000_000,
    include_dashboard=False,
    _temp_dir=sys.argv[1],
)
print(started.address_info["gcs_address"], flush=True)
sys.stdin.read()
"""
LOOKS = """
import os, pathlib, sys
from mortal_steps.compute.base import WorkerSpec
from mortal_steps.places.ray import bridge, node
from mortal_steps.errors import ComputeError

folder = pathlib.Path(sys.argv[2])
number = folder / "cluster/actor-0/1"
number.mkdir(parents=True)
orders = node.Orders(
    worker="actor-0", number=1, nonce="nonce", mortal=node.this_mortal(), run_dir=folder,
    working_dir=folder, spec=WorkerSpec(factory="nowhere:Nobody", kwargs={}),
)
bridge.EXAMINED_WITHIN_S = 20
own = bridge.Bridge(address=sys.argv[1], orders=orders, gpu=None, gpus=0, cpus=1, first=True)
try:
    own.place()
except ComputeError as error:
    print(error)
number.rmdir()
os.mkfifo(number)
bridge.EXAMINED_WITHIN_S = 2
print(own.place())
number.unlink()
number.write_text("nonce")
bridge.EXAMINED_WITHIN_S, bridge.PLACED_WITHIN_S = 20, 0
print(own.place())
bridge.PLACED_WITHIN_S = 60
print(own.place())
own.close()
"""


@pytest.fixture(scope="module")
def node(tmp_path_factory):
    """The address of a cluster of one node, which says that it has a GPU."""
    if not PYTHON.exists():
        pytest.skip("Ray is not there; `make ray-env` installs it beside .venv")
    folder = f"/tmp/mortal-ray-{secrets.token_hex(4)}"  # sockets have short names
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    token = tmp_path_factory.mktemp("ray") / "token"
    token.write_text(secrets.token_hex(32))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RAY_AUTH_MODE", "token")
        patch.setenv("RAY_AUTH_TOKEN_PATH", str(token))
        patch.setenv("RAY_USAGE_STATS_ENABLED", "0")
        patch.setenv("PYTHONPATH", str(ROOT))
        with subprocess.Popen([PYTHON, "-c", NODE, folder], **pipes) as head:
            yield head.stdout.readline().split()[-1]
            head.stdin.close()
    shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture
def make_container(tmp_path):
    """Make the actor of a run with such a `[compute.ray]`."""
    leases = []

    def make(**ray):
        config = parse_config({"compute": {"backend": "ray", "ray": ray}})
        run = Run(RunStore(tmp_path / "runs" / "r"), config, run_info(tmp_path))
        leases.append(acquire(run.store))
        takes = {"gpu": None, "gpus": 0, "cpus": 1, "first": True}
        return RayContainer("actor-0", SPEC, run, leases[-1], takes)

    yield make
    for lease in leases:
        lease.release()


async def test_a_bridge_that_hangs_is_ended_and_the_run_says_so(
    make_container, tmp_path, monkeypatch
):
    asleep = tmp_path / "asleep"
    asleep.write_text("#!/bin/sh\nexec sleep 1000\n")
    asleep.chmod(0o755)
    container = make_container(python=str(asleep), wait_s=1.0)
    monkeypatch.setattr(compute, "ANSWERS_WITHIN_S", 0.5)
    with pytest.raises(ComputeError, match=r"actor-0 has waited for 1 s .*bridge has not answered"):
        await container.call("train_step", {}, "train_step/0/0")
    assert container.process is None


def test_only_what_is_wrong_with_a_node_ends_a_run_and_not_that_it_does_not_answer(node, tmp_path):
    looks = [PYTHON, "-c", LOOKS, node, str(tmp_path)]
    ran = subprocess.run(looks, cwd=ROOT, capture_output=True, text=True)
    assert ran.returncode == 0, ran.stderr
    wrong, silent, starting, placed = ran.stdout.splitlines()
    assert wrong.startswith("the Ray cluster cannot be used: node ")
    assert "cannot begin: IsADirectoryError: [Errno 21]" in wrong and "\x1b" not in wrong
    assert "does not answer: Get timed out" in silent
    assert "or its process is still starting there" in starting
    assert placed == "None"


async def test_a_run_says_that_it_leaves_the_gpus_of_the_cluster_idle(node, make_container, caplog):
    worker = make_container(address=node, python=str(PYTHON), rollout="H100", wait_s=60.0)
    with pytest.raises(MortalError, match="nowhere"):
        await worker.call("train_step", {}, "train_step/0/0")
    await worker.close()
    told = [record.message for record in caplog.records if "computes on a CPU" in record.message]
    assert told == [
        "actor computes on a CPU, and the cluster has GPUs (H100): compute.ray.actor names a kind "
        "for it"
    ]
