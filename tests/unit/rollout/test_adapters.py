"""The transformers engine with LoRA adapters beside its base; vLLM's has the same tests in
tests/integration/rollout."""

import pytest

from mortal_steps.config import RolloutConfig
from mortal_steps.errors import CorruptFileError, EngineError, WeightsMismatchError
from mortal_steps.rollout.weight_sync import canary
from mortal_steps.rollout.weight_sync.base import weight_sync
from mortal_steps.rollout.weight_sync.canary import load_weights
from mortal_steps.store import RunStore
from tests.support.damage import flip_a_byte
from tests.support.rollout.adapters import NEW, make_adapter, publish_adapter, without_one_tensor
from tests.support.rollout.canary import check_canary
from tests.support.rollout.cases import PROBE_IDS
from tests.support.rollout.tiny_model import logprobs_of, publish

METHODS = ("reload", "volume", "checkpoint")


@pytest.fixture(scope="module")
def published(tmp_path_factory, model_a, model_b):
    """A run whose version 0 is new, 1 and 2 are trained, and 3 is a whole model; and the models."""
    store = RunStore(tmp_path_factory.mktemp("run"))
    models = [make_adapter(model_a, 0, spread=NEW), make_adapter(model_a, 1)]
    models.append(make_adapter(model_a, 2))
    versions = [publish_adapter(store, number, model) for number, model in enumerate(models)]
    return store, [*versions, publish(store, 3, model_b)], models


def sync(store, engine, version, method="reload"):
    rollout = RolloutConfig(weight_sync=method)
    load_weights(store, engine, weight_sync(rollout), version, rollout.canary_tolerance)


@pytest.mark.parametrize("method", METHODS)
def test_it_scores_as_the_adapter_beside_its_base_does(published, engine, method):
    store, versions, models = published
    for number in (0, 1, 2, 1, 3, 1):  # a whole model in between leaves the base as it was
        sync(store, engine, versions[number], method)
        if number < 3:
            expected = logprobs_of(models[number], PROBE_IDS)
            assert engine.score(PROBE_IDS) == pytest.approx(expected, abs=1e-5)


def test_an_adapter_that_was_not_loaded_is_refused(published, engine, monkeypatch):
    store, versions, _ = published
    with pytest.raises(WeightsMismatchError, match="weights/v0"):
        check_canary(engine, store.path("weights/v0"), 1e-3)
    sync(store, engine, versions[1])
    monkeypatch.setattr(engine, "load", lambda folder: None)
    for number in (0, 2):
        with pytest.raises(WeightsMismatchError, match=f"weights/v{number}"):
            sync(store, engine, versions[number])


def test_an_adapter_that_nobody_has_trained_is_told_from_another_by_its_tensors(
    published, engine, tmp_path
):
    """Both change nothing, so that no log-probability tells them apart."""
    store, versions, models = published
    other = make_adapter(models[0].get_base_model().name_or_path, 9, spread=NEW)
    publish_adapter(RunStore(tmp_path), 0, other)
    engine.load(tmp_path / "weights/v0")
    expected = logprobs_of(models[0], PROBE_IDS)
    assert engine.score(PROBE_IDS) == pytest.approx(expected, abs=1e-5)
    with pytest.raises(WeightsMismatchError, match="lora_A"):
        check_canary(engine, store.path(versions[0].path), 1e-3)


def test_a_tensor_that_was_not_delivered_is_refused(published, engine, tmp_path):
    store, versions, _ = published
    whole = store.path(versions[1].path)
    with pytest.raises(EngineError, match=r"lora_B.* missing"):
        engine.load(without_one_tensor(whole, tmp_path / "fewer", zeroed=False))
    engine.load(without_one_tensor(whole, tmp_path / "zeroed", zeroed=True))
    with pytest.raises(WeightsMismatchError, match=r"lora_B\.weight"):
        check_canary(engine, whole, 1e-3)


def test_a_flipped_bit_is_refused_before_it_is_loaded(engine, model_a, tmp_path):
    store = RunStore(tmp_path)
    version = publish_adapter(store, 0, make_adapter(model_a, 4))
    flip_a_byte(store.path("weights/v0/adapter_model.safetensors"))
    with pytest.raises(CorruptFileError, match=r"adapter_model\.safetensors"):
        sync(store, engine, version)


def test_an_adapter_is_proven_where_its_tensors_were_compared(published, engine, monkeypatch):
    """And not where the engine only could have compared some."""
    store, versions, _ = published
    found = []
    monkeypatch.setattr(canary, "check_probe", lambda *_, proven: found.append(proven))
    sync(store, engine, versions[1])
    monkeypatch.setattr(engine, "compare", lambda published: {})
    sync(store, engine, versions[1])
    assert found == [True, False]


def test_an_adapter_of_another_model_is_refused(engine, other_shape, tmp_path):
    store = RunStore(tmp_path)
    version = publish_adapter(store, 0, make_adapter(other_shape, 4))
    with pytest.raises(EngineError):
        sync(store, engine, version)
