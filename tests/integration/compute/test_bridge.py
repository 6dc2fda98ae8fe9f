"""Bridges to a Ray cluster that do not answer; Ray itself is in the scenarios."""

import pytest

from mortal_steps.compute.base import WorkerSpec
from mortal_steps.compute.cluster import compute
from mortal_steps.compute.cluster.compute import RayContainer
from mortal_steps.config.loader import parse_config
from mortal_steps.errors import ComputeError
from mortal_steps.runs.lease import acquire
from mortal_steps.runs.run import Run
from mortal_steps.store import RunStore
from tests.support.run_info import run_info

SPEC = WorkerSpec(factory="nowhere:Nobody", kwargs={})


@pytest.fixture
def container(tmp_path):
    """A worker whose bridge never answers: its interpreter is a program that sleeps."""
    asleep = tmp_path / "asleep"
    asleep.write_text("#!/bin/sh\nexec sleep 1000\n")
    asleep.chmod(0o755)
    ray = {"python": str(asleep), "wait_s": 1.0}
    config = parse_config({"compute": {"backend": "ray", "ray": ray}})
    run = Run(RunStore(tmp_path / "runs" / "r"), config, run_info(tmp_path))
    lease = acquire(run.store)
    yield RayContainer("actor-0", SPEC, run, lease, {"gpu": None, "gpus": 0, "cpus": 1})
    lease.release()


async def test_a_bridge_that_hangs_is_ended_and_the_run_says_so(container, monkeypatch):
    monkeypatch.setattr(compute, "ANSWERS_WITHIN_S", 0.5)
    with pytest.raises(ComputeError, match=r"actor-0 has waited for 1 s .*bridge has not answered"):
        await container.call("train_step", {}, "train_step/0/0")
    assert container.process is None
