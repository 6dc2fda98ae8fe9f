"""Published tensors are found again where a model's own `load_weights` puts them, on one worker or
dealt out to several."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from safetensors.torch import save_file

from mortal_steps.rollout.engines.vllm.adapter import VllmAdapters
from mortal_steps.rollout.engines.vllm.weights import Witness, comparable_tensors, compare
from mortal_steps.rollout.weight_sync.published import PublishedTensors
from mortal_steps.rollout.weight_sync.tensor_digests import tensor_digests

GIVEN = {
    "q": torch.randn(8, 6),
    "k": torch.randn(4, 6),
    "down": torch.randn(6, 8),
    "norm": torch.randn(6),
    "experts": torch.randn(2, 6, 4),
    "tied": torch.randn(10, 6),
    "log": torch.randn(4),
    "half": torch.randn(4, 4).bfloat16(),
    "packed": torch.randn(4, 4),
    "unused": torch.randn(3),
}


class Model:
    """What one of `count` workers has of it, as vLLM's layers do."""

    def __init__(self, rank=0, count=1):
        self.rank, self.count = rank, count
        self.qk = torch.zeros((8 + 4) // count, 6)
        self.down = torch.zeros(6, 8 // count)
        self.norm, self.log, self.packed = torch.zeros(6), torch.zeros(4), torch.zeros(4, 4)
        self.experts = torch.zeros(2, 4 // count, 6)
        self.embedding, self.head = torch.zeros(16, 6), torch.zeros(16, 6)
        self.half = torch.zeros(4, 4)

    def own(self, tensor, dim):
        size = tensor.shape[dim] // self.count
        return tensor.narrow(dim, self.rank * size, size)

    def load_weights(self, pairs):
        for name, tensor in pairs:
            if name in "qk":
                rows = 8 // self.count
                place = self.qk[:rows] if name == "q" else self.qk[rows:]
                place.copy_(self.own(tensor, 0))
            elif name == "down":
                self.down.copy_(self.own(tensor, 1))
            elif name == "experts":
                for expert in range(2):
                    self.experts[expert].copy_(self.own(tensor[expert].t(), 0))
            elif name == "tied":
                for place in (self.embedding, self.head):
                    place[:10].copy_(tensor.to("cpu"))
                    place[10:].fill_(0)
            elif name == "log":
                self.log.copy_(-torch.exp(tensor))
            elif name != "unused":
                getattr(self, name).copy_(tensor)


class Llm:
    """As many workers, each with its part."""

    def __init__(self, count):
        self.models = [Model(rank, count) for rank in range(count)]
        self.asked = []
        self.workers = []
        for model in self.models:
            worker = Witness()
            worker.model_runner = SimpleNamespace(get_model=lambda model=model: model)
            self.workers.append(worker)

    def collective_rpc(self, method, args):
        self.asked.append(method)
        return [getattr(worker, method)(*args) for worker in self.workers]


@pytest.fixture(params=[1, 2], ids=["one worker", "two workers"])
def llm(request):
    llm = Llm(request.param)
    for model in llm.models:
        model.load_weights(GIVEN.items())
        model.packed += 1  # in another form once it is loaded
    return llm


@pytest.fixture
def folder(tmp_path):
    save_file(GIVEN, tmp_path / "model.safetensors")
    return tmp_path


@pytest.fixture
def published(folder):
    return PublishedTensors(folder=folder, digests=tensor_digests(GIVEN.items()))


def test_all_that_lies_where_it_is_loaded_is_compared(llm, folder, published):
    comparable = comparable_tensors(llm, folder)
    assert comparable == GIVEN.keys() - {"packed", "unused", "log"}
    llm.asked.clear()
    assert compare(llm, published, comparable) == dict.fromkeys(comparable - {"half"}, True)
    assert llm.asked == ["held"]


@pytest.mark.parametrize(
    ("part", "name"),
    [
        (lambda model: model.qk[0], "q"),
        (lambda model: model.qk[-1], "k"),
        (lambda model: model.down[3], "down"),
        (lambda model: model.norm, "norm"),
        (lambda model: model.experts[1, 0], "experts"),
        (lambda model: model.embedding[9], "tied"),
        (lambda model: model.head[0], "tied"),
    ],
)
@pytest.mark.parametrize("of", [0, -1], ids=["first", "last"])
def test_one_bit_on_one_worker_is_found(llm, folder, published, part, name, of):
    comparable = comparable_tensors(llm, folder)
    part(llm.models[of]).view(torch.int32)[0] ^= 1 << 16
    found = compare(llm, published, comparable)
    assert found == {other: other != name for other in comparable - {"half"}}


def test_of_a_loader_that_looks_at_values_nothing_is_compared(llm, folder, monkeypatch, caplog):
    plain = Model.load_weights

    def load_weights(self, pairs):
        plain(self, ((name, tensor) for name, tensor in pairs if bool((tensor == tensor).all())))

    monkeypatch.setattr(Model, "load_weights", load_weights)
    assert comparable_tensors(llm, folder) == frozenset()
    assert "cannot be compared" in caplog.text


def test_tensors_that_wait_for_others_are_compared_with_those(folder, published, monkeypatch):
    """A `load_weights` may write several once it has all of them."""
    llm = Llm(1)
    plain = Model.load_weights

    def load_weights(self, pairs):
        found = dict(pairs) if not isinstance(pairs, dict) else pairs
        plain(self, found.items())

    monkeypatch.setattr(Model, "load_weights", load_weights)
    llm.models[0].load_weights(GIVEN.items())
    comparable = comparable_tensors(llm, folder)
    assert compare(llm, published, comparable) == dict.fromkeys(comparable - {"half"}, True)
    llm.models[0].qk[0] += 1
    assert not all(compare(llm, published, comparable).values())


def test_without_digests_nothing_is_compared(llm, folder):
    comparable = comparable_tensors(llm, folder)
    assert compare(llm, PublishedTensors(folder=folder), comparable) == {}


@pytest.mark.parametrize(
    ("answers", "quantization", "whole"),
    [
        ([([], False), ([], False)], None, True),
        ([([], False), ([], True)], None, False),
        ([([], False)], "fp8", False),
    ],
)
def test_an_adapter_is_compared_as_a_whole_where_nothing_is_left_out(answers, quantization, whole):
    config = SimpleNamespace(quantization=quantization)
    llm = SimpleNamespace(llm_engine=SimpleNamespace(model_config=config))
    llm.collective_rpc = lambda method, args: answers
    published = PublishedTensors(folder=Path("weights/v1"))
    assert VllmAdapters().compare(llm, published) == {}
    assert published.is_whole == whole


@pytest.mark.parametrize(
    "error", [RuntimeError("CUDA error: unspecified launch failure"), torch.OutOfMemoryError("no")]
)
def test_what_the_gpu_raises_is_no_answer(error, folder, published):
    def refuse(*given, **options):
        raise error

    llm = SimpleNamespace(collective_rpc=refuse)
    with pytest.raises(type(error)):
        comparable_tensors(llm, folder)
    with pytest.raises(type(error)):
        compare(llm, published, frozenset(GIVEN))


def test_an_engine_that_cannot_be_asked_has_nothing_that_can_be_compared(folder, caplog):
    llm = SimpleNamespace(collective_rpc=lambda *given, **options: 1 / 0)
    assert comparable_tensors(llm, folder) == frozenset()
    assert "cannot be compared" in caplog.text
