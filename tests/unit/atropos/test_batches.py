"""The batches of a run: asked for once each, committed, found again."""

import asyncio
import contextlib

import pytest

from mortal_steps.errors import WorkerLostError
from mortal_steps.orchestration.batch_sources.atropos import AtroposBatches
from mortal_steps.orchestration.session import Session
from mortal_steps.plan.run_config import RunConfig
from mortal_steps.runs.run import Run
from mortal_steps.store import RunStore
from mortal_steps.types import PolicyVersion, Problem, WeightsRef
from tests.support.atropos.groups import make_group
from tests.support.atropos.stub import AtroposStub
from tests.support.damage import flip_a_byte
from tests.support.run_info import run_info

WEIGHTS = WeightsRef(version=PolicyVersion(0), path="weights/v0", sha256="0" * 64)
BATCH = "steps/000000/batch.json"


class LostAtFirst:
    """Rollout workers whose first load fails."""

    def __init__(self):
        self.loads = 0

    async def serve_with(self, weights):
        self.loads += 1
        if self.loads == 1:
            raise WorkerLostError("gone")


def source_of(stub, folder, workers=None):
    options = {"url": stub.url, "seq_len": 16, "poll_s": 0.02, "port": 9001}
    config = RunConfig(
        rollout={"source": "atropos", "source_options": options},
        algorithm={"type": "atropos"},
        training={"batch_size": 2, "num_generations": 4, "max_steps": 3},
    )
    session = Session(Run(RunStore(folder), config, run_info(folder)), None)
    return AtroposBatches(session=session, workers=workers)


def groups_of(source, batch):
    rows = source._session.store.read_record(batch.problems.file, list[Problem])
    return [row.columns["tokens"] for row in rows]


def tokens(*numbers):
    return [make_group(number)["tokens"] for number in numbers]


async def until(found):
    async with asyncio.timeout(60):
        while not found():
            await asyncio.sleep(0.005)


async def test_a_batch_is_asked_for_again_after_the_policy_could_not_be_served(tmp_path):
    with AtroposStub([make_group(0), make_group(1)]) as stub:
        source = source_of(stub, tmp_path, LostAtFirst())
        source.publish(WEIGHTS)
        with pytest.raises(WorkerLostError):
            await source.take(0)
        assert groups_of(source, await source.take(0)) == tokens(0, 1)
        await source.close()


async def test_a_policy_that_is_lost_while_a_batch_is_waited_for_stops_that_wait_alone(
    tmp_path, monkeypatch
):
    monkeypatch.setattr("mortal_steps.orchestration.batch_sources.atropos.LOOK_EVERY_S", 0.01)
    workers = LostAtFirst()
    workers.loads = -1
    with AtroposStub() as stub:
        source = source_of(stub, tmp_path, workers)
        source.publish(WEIGHTS)
        with pytest.raises(WorkerLostError):
            await source.take(0)
        stub.queue = [make_group(0), make_group(1)]
        assert groups_of(source, await source.take(0)) == tokens(0, 1)
        await source.close()


async def test_a_wait_that_is_cancelled_is_joined_by_the_next_and_no_batch_is_lost(tmp_path):
    with AtroposStub() as stub:
        source = source_of(stub, tmp_path)
        waiting = asyncio.create_task(source.take(0))
        await until(lambda: stub.asked > 1)
        waiting.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await waiting
        again = asyncio.create_task(source.take(0))
        await asyncio.sleep(0.05)
        stub.queue = [make_group(number) for number in range(4)]
        async with asyncio.timeout(60):
            assert groups_of(source, await again) == tokens(0, 1)
            assert groups_of(source, await source.take(1)) == tokens(2, 3)
        await source.close()
    assert len(stub.served) == 2


def cut_in_half(path):
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


@pytest.mark.parametrize("damage", [flip_a_byte, cut_in_half])
async def test_a_committed_batch_that_is_damaged_is_named_and_another_is_asked_for(
    tmp_path, caplog, damage
):
    with AtroposStub([make_group(number) for number in range(4)]) as stub:
        await source_of(stub, tmp_path).take(0)
        source = source_of(stub, tmp_path)
        assert groups_of(source, await source.take(0)) == tokens(0, 1)
        damage(tmp_path / BATCH)
        assert groups_of(source, await source.take(0)) == tokens(2, 3)
        assert str(tmp_path / BATCH) in caplog.text
        assert "step 0 trains on another batch" in caplog.text


async def test_a_batch_of_another_step_is_not_trained_on(tmp_path, caplog):
    with AtroposStub([make_group(number) for number in range(4)]) as stub:
        source = source_of(stub, tmp_path)
        await source.take(0)
        other = tmp_path / "steps/000001"
        other.mkdir()
        (other / "batch.json").write_bytes((tmp_path / BATCH).read_bytes())
        assert groups_of(source, await source.take(1)) == tokens(2, 3)
        assert str(other / "batch.json") in caplog.text
