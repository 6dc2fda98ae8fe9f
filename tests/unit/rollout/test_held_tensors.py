"""What an engine holds is proven by the digests of its tensors, in whatever form it has them."""

from __future__ import annotations

import pytest
import torch
from safetensors.torch import load_file, save_file

from mortal_steps.config import ModelConfig, RolloutConfig
from mortal_steps.errors import CorruptFileError, WeightsMismatchError
from mortal_steps.rollout.engines.base import Engine
from mortal_steps.rollout.engines.transformers.engine import TransformersEngine
from mortal_steps.rollout.weight_sync.base import weight_sync
from mortal_steps.rollout.weight_sync.canary import load_weights
from mortal_steps.rollout.weight_sync.published import PublishedTensors, check_loaded
from mortal_steps.rollout.weight_sync.tensor_digests import tensor_digests
from mortal_steps.store import RunStore
from tests.support.parity.models import build
from tests.support.rollout import tiny_model
from tests.support.rollout.tiny_model import publish

NAME = "model.safetensors"


@pytest.fixture(scope="module")
def mixtral(tmp_path_factory):
    """Its experts are one tensor in the model, and many in a file."""
    folder = tmp_path_factory.mktemp("mixtral")
    build("mixtral", folder)
    return folder


def engine_of(folder, **model):
    from transformers import AutoTokenizer

    return TransformersEngine(
        model_path=str(folder),
        model=ModelConfig(**model),
        rollout=RolloutConfig(engine="transformers"),
        tokenizer=lambda: AutoTokenizer.from_pretrained(folder),
    )


def test_one_bit_in_any_tensor_is_found(model_a):
    engine, tensors = engine_of(model_a), load_file(model_a / NAME)
    published = PublishedTensors(folder=model_a, digests=tensor_digests(tensors.items()))
    for name in tensors:
        bits = engine._model.get_parameter(name).detach().view(-1)[-1:].view(torch.int32)
        bits ^= 1
        assert engine.compare(published) == {other: other != name for other in tensors}
        bits ^= 1
    assert all(engine.compare(published).values())


@pytest.mark.parametrize("why", ["another type", "no digest"])
def test_what_no_digest_tells_is_not_compared(why, model_a):
    """An engine may hold tensors in another type than they were published in."""
    tensors = load_file(model_a / NAME)
    engine = engine_of(model_a, dtype="bfloat16" if why == "another type" else "float32")
    digests = {} if why == "no digest" else tensor_digests(tensors.items())
    assert engine.compare(PublishedTensors(folder=model_a, digests=digests)) == {}


@pytest.mark.parametrize("why", ["another type", "no digest"])
def test_a_damaged_file_is_refused_where_no_digest_tells(why, model_a, tmp_path, monkeypatch):
    if why == "no digest":
        monkeypatch.setattr(tiny_model, "tensor_digests", lambda tensors: {})
    store = RunStore(tmp_path)
    weights = publish(store, 1, model_a)
    engine = engine_of(model_a, dtype="bfloat16" if why == "another type" else "float32")
    tensors = load_file(model_a / NAME)
    tensors["model.layers.0.mlp.down_proj.weight"][0, 0] *= 1.01
    save_file(tensors, store.path(weights.path) / NAME, metadata={"format": "pt"})
    sync = weight_sync(RolloutConfig(engine="transformers"))
    with pytest.raises(CorruptFileError, match=r"model\.safetensors is damaged"):
        load_weights(store, engine, sync, weights, tolerance=0.1)


def test_converted_tensors_are_compared_too(mixtral, tmp_path):
    engine = engine_of(mixtral)
    engine.load(mixtral)
    tensors = load_file(mixtral / NAME)
    published = PublishedTensors(folder=mixtral, digests=tensor_digests(tensors.items()))
    assert engine.compare(published) == dict.fromkeys(tensors, True)
    experts = next(n for n, _ in engine._model.named_parameters() if n.endswith("down_proj"))
    with torch.no_grad():
        engine._model.get_parameter(experts)[1, 0, 0] += 1e-6
    with pytest.raises(WeightsMismatchError, match=r"experts\.1\.w2\.weight\)"):
        check_loaded(engine.compare(published), "there")


def test_an_engine_of_ones_own_compares_what_it_says(model_a):
    class Silent(Engine):
        def load(self, folder): ...

        def sample(self, prompts_ids, seeds, params): ...

        def score(self, token_ids): ...

    class Comparing(Silent):
        def compare(self, published):
            tensors = load_file(model_a / NAME)
            return published.compared([*tensors.items(), ("its own", torch.ones(1))])

    digests = tensor_digests(load_file(model_a / NAME).items())
    published = PublishedTensors(folder=model_a, digests=digests)
    assert Silent().compare(published) == {}
    assert Comparing().compare(published) == dict.fromkeys(load_file(model_a / NAME), True)
