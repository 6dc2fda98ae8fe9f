"""What an engine holds is proven by the digests of its tensors, in whatever form it has them."""

from __future__ import annotations

import logging

import pytest
import torch
from safetensors.torch import load_file, save_file

from mortal_steps.config import ModelConfig, RolloutConfig
from mortal_steps.errors import CorruptFileError, WeightsMismatchError
from mortal_steps.rollout.engines.base import Engine
from mortal_steps.rollout.engines.held_tensors import is_held, read_files
from mortal_steps.rollout.engines.transformers import TransformersEngine
from mortal_steps.rollout.weight_sync.base import weight_sync
from mortal_steps.rollout.weight_sync.canary import load_weights
from mortal_steps.rollout.weight_sync.compared import Compared
from mortal_steps.rollout.weight_sync.published import PublishedTensors, check_held
from mortal_steps.rollout.weight_sync.tensor_digests import tensor_digests
from mortal_steps.store import RunStore
from mortal_steps.store.tensor_layout import layout_of
from tests.support.parity.models import build
from tests.support.rollout import tiny_model
from tests.support.rollout.tiny_model import publish

NAME = "model.safetensors"


@pytest.fixture
def held(model_a):
    """The tensors of `model_a`, each in memory of its own."""
    return {name: tensor.clone() for name, tensor in load_file(model_a / NAME).items()}


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


def test_tensors_are_read_from_a_file_that_they_lie_as_in(held, model_b):
    assert read_files(held, model_b)
    assert all(torch.equal(held[name], t) for name, t in load_file(model_b / NAME).items())


def test_one_bit_in_any_tensor_is_found(model_a):
    engine, tensors = engine_of(model_a), load_file(model_a / NAME)
    published = PublishedTensors(folder=model_a, digests=tensor_digests(tensors.items()))
    for name in tensors:
        bits = engine._model.get_parameter(name).detach().view(-1)[-1:].view(torch.int32)
        bits ^= 1
        assert engine.compare(published) == {other: other != name for other in tensors}
        bits ^= 1
    assert all(engine.compare(published).values())


@pytest.mark.parametrize("published", ["in another type", "without digests", "with some"])
def test_tensors_are_read_where_no_digest_tells(published, model_a, tmp_path):
    """An engine may hold them in another type than they were published in."""
    tensors = load_file(model_a / NAME)
    digests = tensor_digests(tensors.items())
    if published == "in another type":
        engine = engine_of(model_a, dtype="bfloat16")
    else:
        engine = engine_of(model_a)
        digests = dict(list(digests.items())[:3]) if published == "with some" else {}
    name = "model.layers.0.mlp.down_proj.weight"
    found = engine.compare(PublishedTensors(folder=model_a, digests=digests))
    assert found == dict.fromkeys(tensors, True)
    with torch.no_grad():
        engine._model.get_parameter(name)[0, 0] *= 2
    found = engine.compare(PublishedTensors(folder=model_a, digests=digests))
    assert found == {other: other != name for other in tensors}


@pytest.mark.parametrize("why", ["another type", "no digest"])
def test_a_damaged_file_is_refused_where_no_digest_tells(why, model_a, tmp_path, monkeypatch):
    """Its tensors were compared with themselves."""
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


@pytest.mark.parametrize("other", ["missing", "type", "shape", "strides"])
def test_tensors_in_another_form_are_not_read_over(held, model_a, other):
    name = "model.layers.0.mlp.down_proj.weight"
    if other == "missing":
        del held[name]
    else:
        change = {"type": torch.Tensor.half, "shape": torch.flatten, "strides": torch.t}[other]
        held[name] = change(held[name])
    before = {name: tensor.clone() for name, tensor in held.items()}
    assert not read_files(held, model_a)
    assert all(torch.equal(held[name], before[name]) for name in held)


def test_a_file_that_is_cut_short_is_refused(held, model_a, tmp_path):
    content = (model_a / NAME).read_bytes()
    for length in (len(content) - 1, 100, 4, 0):
        (tmp_path / NAME).write_bytes(content[:length])
        with pytest.raises(CorruptFileError):
            read_files(held, tmp_path)


def test_bits_are_compared_and_not_numbers():
    assert is_held(torch.tensor([torch.nan, 1.0]), torch.tensor([torch.nan, 1.0]))
    assert not is_held(torch.tensor([0.0]), torch.tensor([-0.0]))
    assert is_held(torch.tensor([True]), torch.tensor([True]))


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
        check_held(engine.compare(published), "there")


def test_the_log_says_once_how_much_is_compared(tmp_path, model_a, mixtral, caplog):
    compared, store = Compared(), RunStore(tmp_path)
    rollout = RolloutConfig(engine="transformers")
    weights, engine = publish(store, 1, model_a), engine_of(model_a)
    size = sum(tensor.nbytes for tensor in load_file(model_a / NAME).values())
    with caplog.at_level(logging.INFO):
        for _ in range(2):
            load_weights(store, engine, weight_sync(rollout), weights, 1e-3, compared)
    names = load_file(model_a / NAME).keys()
    assert caplog.text.count(f"all {len(names)} tensors of a version ({size:,} bytes) are") == 1


def test_an_engine_of_ones_own_compares_what_it_says(model_a):
    class Silent(Engine):
        def load(self, folder): ...

        def sample(self, prompts_ids, seeds, params): ...

        def score(self, token_ids): ...

    class Comparing(Silent):
        def compare(self, published):
            tensors = load_file(model_a / NAME)
            return published.compared([*tensors.items(), ("its own", torch.ones(1))])

    published = PublishedTensors(folder=model_a)
    assert Silent().compare(published) == {}
    assert Comparing().compare(published) == dict.fromkeys(load_file(model_a / NAME), True)


def test_the_log_names_what_the_probe_alone_proves(tmp_path, model_a, caplog):
    tensors = load_file(model_a / NAME)
    save_file({**tensors, "other": torch.zeros(3)}, tmp_path / NAME)
    Compared().tell(tensors, [layout_of(tmp_path / NAME)])
    size = sum(tensor.nbytes for tensor in tensors.values())
    expected = f"{len(tensors)} of {len(tensors) + 1} tensors of a version ({size:,} of {size + 12}"
    assert expected.replace(str(size + 12), f"{size + 12:,}") in caplog.text
    assert "alone are their proof: other" in caplog.text
