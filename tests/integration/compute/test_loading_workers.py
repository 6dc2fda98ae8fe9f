"""What is to be sampled waits in the worker that loads the weights for it."""

import asyncio
import contextlib
import os
import signal
import time

import pytest

from mortal_steps.compute.base import WorkerSpec
from mortal_steps.compute.local import LocalCompute
from mortal_steps.errors import DataError, WorkerLostError
from mortal_steps.orchestration.batch_sources.base import RolloutWorkers
from mortal_steps.orchestration.session import Session
from mortal_steps.plan.run_config import RunConfig
from mortal_steps.runs.run import Run
from mortal_steps.store import RunStore
from mortal_steps.types import PolicyVersion, WeightsRef
from tests.support.run_info import run_info
from tests.support.workers import TESTS_IMPORTABLE

KEY = "generate/0/0"


class Timings(list):
    """In place of a recorder."""

    def timing(self, *timings):
        self.extend((timing.stage, timing.step, timing.index) for timing in timings)


@pytest.fixture
async def compute(tmp_path):
    spec = WorkerSpec(
        factory="tests.support.workers:Loader",
        kwargs={"folder": tmp_path},
        count=2,
        prepare="start",
        devices=("0", "1"),
        env=TESTS_IMPORTABLE,
    )
    compute = LocalCompute({"rollout": spec}, working_dir=tmp_path, log_dir=tmp_path)
    await compute.start("rollout")
    await until(lambda: compute.ready_workers("rollout") == [0, 1])
    yield compute
    await compute.close()


@pytest.fixture
def timings():
    return Timings()


@pytest.fixture
def workers(compute, tmp_path, timings):
    session = Session(Run(RunStore(tmp_path), RunConfig(), run_info(tmp_path)), compute)
    return RolloutWorkers(session, timings)


async def until(found):
    deadline = time.monotonic() + 60
    while not found():
        assert time.monotonic() < deadline
        await asyncio.sleep(0.01)


def version(number):
    return WeightsRef(version=PolicyVersion(number), path=f"weights/v{number}", sha256="")


def sample_twice(compute):
    return asyncio.gather(*(compute.call("rollout", "generate", key=KEY) for _ in range(2)))


def asked(folder):
    return [(folder / f"asked-{number}").read_text().split() for number in range(2)]


async def test_shards_are_sent_at_once_and_wait_for_the_weights(
    compute, workers, timings, tmp_path
):
    (tmp_path / "holds").touch()
    async with asyncio.timeout(60), workers.sampling_with(version(1)):
        sampling = asyncio.ensure_future(sample_twice(compute))
        await until(lambda: len(list(tmp_path.glob("asked-*"))) == 2)
        assert asked(tmp_path) == [["loads"], ["loads"]] and not sampling.done()
        (tmp_path / "holds").unlink()
        await sampling
    assert asked(tmp_path) == [["loads", "samples"], ["loads", "samples"]]
    assert timings == [("sync_weights", 1, 0), ("sync_weights", 1, 1)]
    async with workers.sampling_with(version(1)):
        await sample_twice(compute)
    assert asked(tmp_path) == [["loads", "samples", "samples"]] * 2, "it is loaded once"


async def test_a_worker_killed_while_it_loads_loses_the_shard_that_waits_there(
    compute, workers, timings, tmp_path
):
    (tmp_path / "holds").touch()
    async with workers.sampling_with(version(1)):
        sampling = [
            asyncio.create_task(compute.call("rollout", "generate", key=KEY)) for _ in range(2)
        ]
        await until(lambda: len(list(tmp_path.glob("asked-*"))) == 2)
        os.kill(compute.processes()["rollout-1"], signal.SIGKILL)
        ended, _ = await asyncio.wait(sampling, return_when=asyncio.FIRST_COMPLETED)
        assert [type(each.exception()) for each in ended] == [WorkerLostError]
        (tmp_path / "holds").unlink()
        await asyncio.wait(sampling)
        await compute.call("rollout", "generate", key=KEY)  # as the task does that is tried again
    assert [stage for stage, *_ in timings] == ["sync_weights"] * 2
    assert sum(each.count("samples") for each in asked(tmp_path)) == 2


async def test_a_worker_whose_load_was_given_up_is_asked_for_it_again(
    compute, workers, timings, tmp_path
):
    (tmp_path / "holds").touch()
    serving = asyncio.create_task(workers.serve_with(version(1)))
    await until(lambda: len(list(tmp_path.glob("asked-*"))) == 2)
    serving.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await serving
    (tmp_path / "holds").unlink()
    for _ in range(2):
        await workers.serve_with(version(1))
    assert asked(tmp_path) == [["loads", "loads"]] * 2, "what has loaded it is asked no more"
    assert sorted(timings) == [("sync_weights", 1, 0), ("sync_weights", 1, 1)]


async def test_weights_that_are_refused_end_the_block_whatever_was_sampled(
    compute, workers, timings, tmp_path
):
    (tmp_path / "refuses").touch()
    with pytest.raises(DataError, match="these weights are not taken"):
        async with workers.sampling_with(version(1)):
            await sample_twice(compute)
    assert not timings
    (tmp_path / "refuses").unlink()
    async with workers.sampling_with(version(1)):
        await sample_twice(compute)
    assert asked(tmp_path) == [["loads", "samples"] * 2] * 2, "it was not taken for loaded"


async def test_what_loads_is_not_waited_for_where_the_block_fails(compute, workers, tmp_path):
    (tmp_path / "holds").touch()
    with contextlib.suppress(KeyError):
        async with asyncio.timeout(60), workers.sampling_with(version(1)):
            raise KeyError
    assert not asyncio.current_task().cancelled()
    (tmp_path / "holds").unlink()
