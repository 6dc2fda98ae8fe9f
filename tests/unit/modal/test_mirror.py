"""The flow's side of records that travel: what is still owed to the Volume."""

import asyncio

import pytest

from mortal_steps.errors import CorruptFileError, TransientError, WorkerError
from mortal_steps.places.modal import messages
from mortal_steps.places.modal.files import mirror
from mortal_steps.places.modal.files.mirror import Mirror
from mortal_steps.places.modal.messages import CallResult
from mortal_steps.store import RunStore
from mortal_steps.store.files import write_atomically
from mortal_steps.store.records import shard_file
from mortal_steps.types import (
    FileRef,
    Problem,
    RewardedShard,
)
from tests.support.modal.travel import MADE, PROBLEMS


def write(store, name, body=MADE):
    return store.write_record(f"steps/000000/{name}.json", body, list[Problem])


async def test_a_record_goes_with_orders_until_one_is_answered(volume, here, batch, tmp_path):
    mine, container = Mirror(volume, here), RunStore(tmp_path / "container")
    sampled = write(container, "sampled")
    scored = write(here, "scored")
    mine.take_along(scored)
    asked = {"problems": batch, "rewards": [scored]}
    assert list(await mine.load(asked)) == [batch, scored]
    assert list(await mine.load(asked)) == [batch, scored], "if nobody answers"
    content = messages.load_records(container, [sampled])
    await mine.pull(asked, CallResult(value=sampled, files=content))
    assert here.read_record(sampled, list[Problem]) == MADE
    assert await mine.load({"all": [batch, scored, sampled]}) == {}
    assert volume.asked == []


async def test_a_flow_that_comes_back_uploads_what_the_one_before_had_not_sent(
    volume, here, there, batch
):
    write_atomically(there.path("run.json"), b"{}")
    shard = RewardedShard(step=0, shard=0, generation_sha256="0", rewards=[[{"a": 1.0}]])
    scored = here.write_record(shard_file("steps/000000", "rewards", 0), shard, RewardedShard)
    mine = Mirror(volume, here)
    await mine.begin()
    await mine.push()
    assert there.read_record(batch, list[Problem]) == PROBLEMS
    assert there.read_record(scored, RewardedShard) == shard


async def test_what_is_larger_than_an_order_is_uploaded_before_it(
    volume, here, there, batch, monkeypatch
):
    monkeypatch.setattr(messages, "ROOM", 10)
    assert await Mirror(volume, here).load({"problems": batch}) == {}
    assert there.read_record(batch, list[Problem]) == PROBLEMS


async def test_what_an_outcome_lacks_is_downloaded(volume, here, there):
    made = write(there, "made")
    await Mirror(volume, here).pull({}, CallResult(value=made))
    assert here.read_record(made, list[Problem]) == MADE
    with pytest.raises(CorruptFileError):
        await Mirror(volume, here).pull(
            {}, CallResult(value=FileRef(path=made.path, sha256="0" * 64))
        )


async def test_the_volume_hears_where_the_run_stands_beside_the_calls(
    volume, here, there, monkeypatch
):
    monkeypatch.setattr(mirror, "KEEP_UP_S", 0.01)
    mine = Mirror(volume, here)
    async with mine.keeping_up():
        for step in (b"1", b"2"):
            write_atomically(here.path("manifest.json"), step)
            async with asyncio.timeout(60):
                while (
                    not (path := there.path("manifest.json")).exists() or path.read_bytes() != step
                ):
                    await asyncio.sleep(0.01)
        assert volume.asked == ["upload", "upload"]
        write_atomically(here.path("manifest.json"), b"three")
        for away, told in (
            (TransientError("Modal cannot be reached"), TransientError),
            (RuntimeError("nobody has thought of this"), WorkerError),
        ):
            volume.away = away
            with pytest.raises(told):
                async with asyncio.timeout(60):
                    while True:
                        await mine.load({})
                        await asyncio.sleep(0.01)
        volume.away = None
        async with asyncio.timeout(60):
            while there.path("manifest.json").read_bytes() != b"three":
                await asyncio.sleep(0.01)
