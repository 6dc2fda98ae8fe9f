"""`rollout.dtype`: engines get the weights cast, training and checkpoints do not see it."""

from __future__ import annotations

import json

import pytest
import torch
from pydantic import TypeAdapter
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM

from mortal_steps.policy.algorithms.stepping.scoring import rounded
from mortal_steps.policy.on_disk import weights
from mortal_steps.rollout.weight_sync.canary import HALF_PRECISION_TOLERANCE
from mortal_steps.types import WeightsRef
from tests.support.policy.rollouts import make_config
from tests.support.policy.runs import make_run
from tests.support.rollout.asked import tried
from tests.support.rollout.planted import KINDS

TRAINING = {
    "model": {"importance_sampling_correction": False},
    "adapter": {"use_lora": True, "lora": {"r": 5, "publish": "adapter"}},
}
CAST = {"model": "model.safetensors", "adapter": "adapter_model.safetensors"}


def trained(folder, model_path, kind, **rollout):
    """Return a run of two steps, its actor, and the three versions published."""
    config = make_config(rollout=rollout, **TRAINING[kind])
    run = make_run(folder, config, model_path)
    actor = run.actor()
    versions = [*actor.prepare(step=0).weights]
    versions += [result.weights for result in run.train(actor, range(2))]
    return run, actor, versions


@pytest.fixture(scope="module")
def runs(model_path, tmp_path_factory):
    """By kind: with bfloat16 for the sampler."""
    return {
        kind: trained(
            tmp_path_factory.mktemp(kind),
            model_path,
            kind,
            weight_sync="volume",
            dtype="bfloat16",
            staleness=2,  # all versions stay
        )
        for kind in KINDS
    }


@pytest.mark.parametrize("kind", KINDS)
def test_the_version_holds_the_weights_rounded_once(runs, kind):
    run, actor, versions = runs[kind]
    stepper = actor._states.state.stepper
    folder = run.store.path(versions[2].path)
    cast = load_file(folder / CAST[kind])
    assert {tensor.dtype for tensor in cast.values()} == {torch.bfloat16}
    stepper._published_in, before = None, stepper._published_in
    whole = folder.parent / "whole"
    whole.mkdir(exist_ok=True)
    stepper.export_weights(whole)
    stepper._published_in = before
    masters = load_file(whole / CAST[kind])
    assert masters.keys() == cast.keys()
    assert all(torch.equal(masters[n].bfloat16(), cast[n]) for n in cast)
    assert any(not torch.equal(masters[n], cast[n].float()) for n in cast)
    if kind == "model":
        assert json.loads((folder / "config.json").read_text())["dtype"] == "bfloat16"
        sizes = [path.stat().st_size for path in (folder / CAST[kind], whole / CAST[kind])]
        assert sizes[0] < 0.55 * sizes[1]


def test_training_checkpoints_and_the_final_model_do_not_see_it(model_path, tmp_path):
    found = {}
    for dtype in ("bfloat16", None):
        run, actor, _ = trained(tmp_path / str(dtype), model_path, "model", dtype=dtype)
        digests = run.state_digests(actor, 2)
        actor._num_steps = 2
        found[dtype] = [
            digests["model.safetensors"],
            digests["optimizer.pt"],
            actor.save_final().weights_sha256,
        ]
    assert found["bfloat16"] == found[None]


def test_the_probe_is_scored_with_rounded_weights(runs):
    run, actor, versions = runs["model"]
    probe = json.loads((run.store.path(versions[2].path) / "probe.json").read_bytes())
    ids = torch.tensor([probe["token_ids"]])
    cast = AutoModelForCausalLM.from_pretrained(
        run.store.path(versions[2].path), dtype=torch.float32
    ).eval()
    with torch.no_grad():
        logprobs = cast(ids).logits[0, :-1].log_softmax(-1)
    expected = logprobs.gather(1, ids[0, 1:, None]).squeeze(1).tolist()
    assert probe["logprobs"] == pytest.approx(expected, abs=1e-6)
    model = actor._states.state.stepper._trainer.model
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    pointers = [parameter.data_ptr() for parameter in model.parameters()]
    with pytest.raises(IndexError), rounded(model, torch.bfloat16):
        model(input_ids=torch.tensor([[10**6]]))
    assert pointers == [parameter.data_ptr() for parameter in model.parameters()]
    assert all(torch.equal(before[n], tensor) for n, tensor in model.state_dict().items())
    assert not model._forward_hooks


@pytest.mark.parametrize("engine", ["transformers", pytest.param("vllm", marks=pytest.mark.vllm)])
def test_engines_take_it_and_refuse_faults(runs, model_path, engine):
    job = {
        kind: {
            "run_dir": str(run.store.root),
            "base": model_path,
            "versions": TypeAdapter(list[WeightsRef]).dump_python(versions, mode="json"),
        }
        for kind, (run, _, versions) in runs.items()
    }
    answer = tried({**job, "dtype": "bfloat16", "methods": ["volume"]}, engine)
    for kind, found in answer.items():
        (found_there,) = found.values()
        assert found_there["dtype"] == "bfloat16"
        assert found_there["synced"][0] == found_there["synced"][2] != found_there["synced"][1]
        if (engine, kind) == ("vllm", "adapter"):
            # vLLM holds B times its scaling, in bfloat16: neighbours can become the same number.
            del found_there["faults"]["one value off by its last bit"]
        assert all("holds None" in said for said in found_there["faults"].values()), kind


def test_the_tolerance_is_that_of_half_precision(runs):
    """Two correct ways to compute with the same rounded weights differ by less."""
    run, _, versions = runs["model"]
    folder = run.store.path(versions[2].path)
    probe = json.loads((folder / "probe.json").read_bytes())
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.bfloat16).eval()
    ids = torch.tensor([probe["token_ids"]])
    with torch.no_grad():
        logprobs = model(ids).logits[0, :-1].float().log_softmax(-1)
    found = logprobs.gather(1, ids[0, 1:, None]).squeeze(1).tolist()
    off_by = max(abs(a - b) for a, b in zip(found, probe["logprobs"], strict=True))
    assert 1e-5 < off_by < HALF_PRECISION_TOLERANCE / 3
    assert weights.find(run.store, 2) == versions[2]
