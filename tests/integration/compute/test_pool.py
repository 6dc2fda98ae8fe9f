"""Workers come and go: whoever is ready works, a lost one comes back, a late one joins."""

import asyncio
import os
import signal
import time

import pytest

from mortal_steps.compute import pool
from mortal_steps.compute.base import WorkerSpec
from mortal_steps.compute.local import LocalCompute
from mortal_steps.errors import DataError, WorkerLostError
from mortal_steps.orchestration.session import Session
from mortal_steps.plan.run_config import RunConfig
from mortal_steps.runs.run import Run
from mortal_steps.store import RunStore
from mortal_steps.types import PolicyVersion, WeightsRef
from tests.support.run_info import run_info

KEY = "generate/0/0"


@pytest.fixture
async def compute(tmp_path):
    """Two workers that get ready first."""
    compute = LocalCompute({"rollout": two_samplers(tmp_path)}, working_dir=".", log_dir=tmp_path)
    yield compute
    await compute.close()


def two_samplers(folder, prepare="start"):
    return WorkerSpec(
        factory="tests.support.workers:Sampler",
        kwargs={"folder": folder},
        count=2,
        prepare=prepare,
        devices=("0", "1"),
    )


def generate(compute, shard, seconds=0.0):
    return asyncio.create_task(
        compute.call("rollout", "generate", key=KEY, shard=shard, seconds=seconds)
    )


async def until_ready(compute, *numbers):
    deadline = time.monotonic() + 60
    while compute.ready_workers("rollout") != list(numbers):
        assert time.monotonic() < deadline
        await asyncio.sleep(0.01)


async def pids_of_two_calls(compute):
    """Of calls that are made at the same time."""
    made = await asyncio.gather(*(generate(compute, shard, 0.1) for shard in range(2)))
    return {pid for _, pid in made}


async def test_the_shard_of_a_killed_worker_goes_to_the_other(compute, tmp_path):
    await compute.start("rollout")
    await until_ready(compute, 0, 1)
    before = compute.processes()
    shards = [generate(compute, shard, 1.0) for shard in range(2)]
    await asyncio.sleep(0.2)
    (tmp_path / "holds-0").touch()
    os.kill(before["rollout-0"], signal.SIGKILL)
    done, _ = await asyncio.wait(shards, return_when=asyncio.FIRST_EXCEPTION)
    (lost,) = (shard for shard, call in enumerate(shards) if call in done)
    with pytest.raises(WorkerLostError, match=r"rollout-0 .* ended: SIGKILL"):
        await shards[lost]
    assert compute.ready_workers("rollout") == [1], "nobody waits for the lost one"
    made = await asyncio.gather(shards[1 - lost], generate(compute, lost))
    assert made == [((1 - lost) ** 2, before["rollout-1"]), (lost**2, before["rollout-1"])]
    (tmp_path / "holds-0").unlink()
    await until_ready(compute, 0, 1)
    assert compute.processes()["rollout-0"] != before["rollout-0"]
    assert await pids_of_two_calls(compute) == set(compute.processes().values())


async def test_a_late_worker_joins_the_work(compute, tmp_path):
    (tmp_path / "holds-1").touch()
    await compute.start("rollout")
    assert compute.ready_workers("rollout") == [0]
    first = compute.processes()["rollout-0"]
    assert await pids_of_two_calls(compute) == {first}
    (tmp_path / "holds-1").unlink()
    await until_ready(compute, 0, 1)
    assert await pids_of_two_calls(compute) == set(compute.processes().values()) > {first}


async def test_a_worker_lost_while_idle_is_still_one_worker(compute):
    """Whoever came back twice must not be dealt two calls while another has none."""
    await compute.start("rollout")
    await until_ready(compute, 0, 1)
    for _ in range(2):
        os.kill(compute.processes()["rollout-0"], signal.SIGKILL)
        await until_ready(compute, 1)
        await until_ready(compute, 0, 1)
    for _ in range(2):
        assert await pids_of_two_calls(compute) == set(compute.processes().values())


async def test_a_worker_that_cannot_start_stops_nobody_else(compute, tmp_path, monkeypatch):
    monkeypatch.setattr(pool, "RESTART_DELAYS_S", (0.0,))
    (tmp_path / "ends-1").touch()
    await compute.start("rollout")
    first = compute.processes()["rollout-0"]
    (tmp_path / "ends-0").touch()
    for _ in range(3):
        assert await pids_of_two_calls(compute) == {first}
    os.kill(first, signal.SIGKILL)
    await until_ready(compute)
    with pytest.raises(WorkerLostError, match=r"rollout-. \(process \d+\) ended: exit code 3"):
        await generate(compute, 0)
    for file in tmp_path.glob("ends-*"):
        file.unlink()
    assert (await generate(compute, 3))[0] == 9, "they are tried again when they are asked for"
    await until_ready(compute, 0, 1)
    assert len(await pids_of_two_calls(compute)) == 2


async def test_a_worker_lost_while_it_loads_weights_holds_up_nobody(compute, tmp_path):
    session = Session(Run(RunStore(tmp_path), RunConfig(), run_info(tmp_path)), compute)
    await compute.start("rollout")
    await until_ready(compute, 0, 1)
    weights = WeightsRef(version=PolicyVersion(3), path="weights/v3", sha256="")
    timing = await session.sync_weights(weights, worker=1)
    assert (timing.stage, timing.step, timing.index) == ("sync_weights", 3, 1)
    assert (await generate(compute, 2))[0] == 4
    await until_ready(compute, 0, 1)


async def test_an_error_of_the_worker_itself_reaches_whoever_waits(tmp_path):
    spec = two_samplers(tmp_path, prepare="refuse")
    compute = LocalCompute({"rollout": spec}, working_dir=".", log_dir=tmp_path)
    for _ in range(2):
        with pytest.raises(DataError, match="no such engine"):
            await compute.start("rollout")
    await compute.close()
