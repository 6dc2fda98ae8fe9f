"""`direct` on the worker's side: what is in memory is proven, or else the folder is read."""

from __future__ import annotations

import gc
import logging
import types
from dataclasses import replace
from pathlib import Path

import pytest

from mortal_steps.config import RunConfig
from mortal_steps.errors import CorruptFileError, EngineError
from mortal_steps.rollout.engines.base import Engine
from mortal_steps.rollout.worker import RolloutWorker
from mortal_steps.store import RunStore
from mortal_steps.store.segments import SHARED_MEMORY, START, remove_segments
from mortal_steps.types import SegmentRef
from tests.support.damage import flip_a_byte
from tests.support.rollout import tiny_model
from tests.support.rollout.cases import PARAMS, PROMPTS_IDS, seeds
from tests.support.rollout.tiny_model import publish, share


@pytest.fixture
def store(tmp_path):
    yield RunStore(tmp_path)
    remove_segments(tmp_path)


@pytest.fixture
def worker(store, model_a):
    return RolloutWorker(
        run_dir=str(store.root), config=config(weight_sync="direct"), model_path=str(model_a)
    )


@pytest.fixture
def v1(store, model_b):
    """In memory alone: its folder is not written yet."""
    _, weights = share(store, publish(store, 1, model_b))
    store.path("weights/v1").rename(store.path("weights/later"))
    return weights


def config(**rollout):
    return RunConfig.model_validate({"rollout": {"engine": "transformers", **rollout}})


def sampled(worker):
    return worker._engine.sample(PROMPTS_IDS, seeds(len(PROMPTS_IDS)), PARAMS["plain"])


def sampled_from_a_folder(store, model_a, model_b):
    other = RolloutWorker(run_dir=str(store.root), config=config(), model_path=str(model_a))
    other.sync_weights(weights=publish(store, 9, model_b))
    return sampled(other)


def damage(weights, offset, bit=0):
    with (SHARED_MEMORY / weights.segment.name).open("r+b") as file:
        file.seek(offset)
        (byte,) = file.read(1)
        file.seek(offset)
        file.write(bytes([byte ^ 1 << bit]))


def test_weights_in_memory_are_those_of_the_folder_to_the_bit(store, worker, v1, model_a, model_b):
    worker.sync_weights(weights=v1)
    assert sampled(worker) == sampled_from_a_folder(store, model_a, model_b)


def test_one_segment_has_one_version_after_the_other(store, worker, model_a, model_b):
    """The worker keeps its mapping of it."""
    segment, v1 = share(store, publish(store, 1, model_b))
    for version, model in ((2, model_a), (3, model_b)):
        worker.sync_weights(weights=v1)
        weights = publish(store, version, model)
        names = ("config.json", "generation_config.json", "probe.json", "manifest.json")
        files = {name: (store.path(weights.path) / name).read_bytes() for name in names}
        assert segment.try_to_lock()
        payload = (model / "model.safetensors").read_bytes()
        segment.payload(len(payload))[:] = payload
        place = segment.seal(files, ("model.safetensors", len(payload)))
        worker.sync_weights(weights=replace(weights, segment=place))
        assert worker._num_bytes == len(payload) + sum(map(len, files.values()))  # of the memory
        reread = RolloutWorker(run_dir=str(store.root), config=config(), model_path=str(model_a))
        reread.sync_weights(weights=weights)
        assert sampled(worker) == sampled(reread)
        v1 = publish(store, version + 10, model_a)


def test_a_worker_keeps_no_mapping_of_what_is_removed(store, worker, model_b):
    v1 = share(store, publish(store, 1, model_b))[1]
    worker.sync_weights(weights=v1)
    gc.collect()  # the writer's mapping
    assert v1.segment.name in Path("/proc/self/maps").read_text()
    remove_segments(store.root)
    worker._engine_with(v1)  # as for every shard
    gc.collect()
    assert v1.segment.name not in Path("/proc/self/maps").read_text()


def test_what_happens_to_the_memory_afterwards_changes_nothing(store, worker, v1):
    worker.sync_weights(weights=v1)
    before = sampled(worker)
    with (SHARED_MEMORY / v1.segment.name).open("r+b") as file:
        file.seek(START)
        file.write(bytes(100_000))
    assert sampled(worker) == before
    remove_segments(store.root)
    assert sampled(worker) == before


@pytest.mark.parametrize(
    "where", [16, b"model.safetensors", START + 2, START + 12, START + 20_000, START + 200_000]
)
@pytest.mark.parametrize("bit", [0, 7])
def test_a_damaged_segment_is_refused_and_not_sampled_with(worker, v1, where, bit):
    """Each of its parts, by a bit that leaves a letter a letter, and by one that does not."""
    if isinstance(where, bytes):
        where = (SHARED_MEMORY / v1.segment.name).read_bytes().index(where)
    damage(v1, where, bit)
    for _ in range(2):
        with pytest.raises(CorruptFileError, match=f"{v1.segment.name}.*mortal resume") as refused:
            worker.sync_weights(weights=v1)
        assert len(str(refused.value)) < 500
        assert worker._loaded is None


def test_damage_is_refused_where_no_digest_of_a_tensor_tells(store, worker, model_b, monkeypatch):
    monkeypatch.setattr(tiny_model, "tensor_digests", lambda tensors: {})
    weights = share(store, publish(store, 1, model_b))[1]
    damage(weights, START + 200_000)
    with pytest.raises(CorruptFileError, match=weights.segment.name):
        worker.sync_weights(weights=weights)


def test_other_files_than_were_published_are_refused(store, worker, v1, model_a):
    _, other = share(store, publish(store, 2, model_a))
    with pytest.raises(CorruptFileError, match="its manifest is another"):
        worker.sync_weights(weights=replace(v1, segment=other.segment))


def test_a_segment_that_holds_a_later_version_is_not_read(store, worker, model_a, model_b, caplog):
    segment, v1 = share(store, publish(store, 1, model_b))
    segment.try_to_lock()
    segment.seal({}, ("model.safetensors", 8))
    with caplog.at_level(logging.WARNING):
        worker.sync_weights(weights=v1)
    assert "v1 are in shared memory no longer" in caplog.text
    assert sampled(worker) == sampled_from_a_folder(store, model_a, model_b)


@pytest.mark.parametrize("gone", ["segment", "both"])
def test_without_memory_the_folder_is_read_and_checked(store, worker, v1, gone):
    remove_segments(store.root)
    with pytest.raises(CorruptFileError, match=r"weights/v1.*missing"):
        worker.sync_weights(weights=v1)
    store.path("weights/later").rename(store.path("weights/v1"))
    if gone == "both":
        flip_a_byte(store.path("weights/v1/model.safetensors"))
        with pytest.raises(CorruptFileError, match=r"model\.safetensors is damaged"):
            worker.sync_weights(weights=v1)
    else:
        worker.sync_weights(weights=v1)
        assert worker._loaded == v1


def test_a_version_of_an_earlier_attempt_is_read_from_its_folder(store, worker, model_b, caplog):
    with caplog.at_level(logging.INFO):
        worker.sync_weights(weights=publish(store, 1, model_b))
    assert "v1 are in no shared memory; reading their folder" in caplog.text


def test_tensors_of_another_model_are_an_engine_error(store, worker, other_shape):
    _, weights = share(store, publish(store, 1, other_shape))
    with pytest.raises(EngineError, match="size mismatch"):
        worker.sync_weights(weights=weights)


def test_an_engine_that_takes_no_tensors_names_what_works(worker, v1):
    worker.start()
    worker._engine.load_tensors = types.MethodType(Engine.load_tensors, worker._engine)
    with pytest.raises(EngineError, match="'reload', 'volume' or 'checkpoint'"):
        worker.sync_weights(weights=v1)


def test_a_failure_midway_is_recovered_with_the_folder(store, worker, model_b, caplog):
    _, v1 = share(store, publish(store, 1, model_b))
    worker.start()

    def fail(tensors):
        raise MemoryError("midway")

    worker._engine.load_tensors = fail
    worker.sync_weights(weights=v1)
    assert "reading its folder" in caplog.text
    assert worker._loaded == v1


def test_where_a_version_lies_does_not_make_it_another(v1):
    elsewhere = replace(v1, segment=SegmentRef(name="mortal-0-0-0", stamp="0"))
    assert elsewhere == v1 == replace(v1, segment=None)
