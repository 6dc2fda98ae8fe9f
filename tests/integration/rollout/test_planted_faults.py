"""Ways of syncing weights, whole models and adapters, both engines: what is held after a sync
is what was published, and a fault on the way is refused at once."""

from __future__ import annotations

import re

import pytest
from pydantic import TypeAdapter

from mortal_steps.store import RunStore
from mortal_steps.types import WeightsRef
from tests.support.rollout.adapters import make_adapter, nudge, publish_adapter
from tests.support.rollout.asked import tried
from tests.support.rollout.cases import PROBE_IDS, SPREAD, SPREAD_ENV
from tests.support.rollout.planted import GREEDY, KINDS, METHODS, PROMPTS, SUBTLE, SYNCED
from tests.support.rollout.reference import completion_logprobs
from tests.support.rollout.tiny_model import (
    build_tiny_model,
    logprobs_of,
    publish,
    read_model,
)

TOLERANCE = 1e-3
"""rollout.canary_tolerance"""
REFUSED = {
    "nothing delivered": r"WeightsMismatchError: .*v2.*other or missing",
    "one tensor not delivered": r"WeightsMismatchError: .*v2.*other or missing: [\w.]*1\.mlp\.down",
    "one value off by its last bit": r"WeightsMismatchError: .*v2.*missing: [\w.]*1\.mlp\.down",
    "reused name": "CorruptFileError: ",
}


@pytest.fixture(scope="session")
def models(model_a, model_b):
    """By kind: what each version computes. The last is next to the one before it."""
    whole = [read_model(model_a), read_model(model_b), nudge(read_model(model_b))]
    adapters = [make_adapter(model_a, 1), make_adapter(model_a, 2), make_adapter(model_a, 2)]
    return {"model": whole, "adapter": [*adapters[:2], nudge(adapters[2])]}


@pytest.fixture(scope="session")
def job(models, model_a, tmp_path_factory):
    base = build_tiny_model(tmp_path_factory.mktemp("base"), seed=6)
    stores = {kind: RunStore(tmp_path_factory.mktemp(kind)) for kind in KINDS}
    versions = {"model": [], "adapter": []}
    for number, model in enumerate(models["model"]):
        folder = tmp_path_factory.mktemp("saved")
        model.save_pretrained(folder)
        versions["model"].append(publish(stores["model"], number, folder))
    for number, model in enumerate(models["adapter"]):
        versions["adapter"].append(publish_adapter(stores["adapter"], number, model))
    return {
        kind: {
            "run_dir": str(stores[kind].root),
            "base": str(base if kind == "model" else model_a),
            "versions": TypeAdapter(list[WeightsRef]).dump_python(versions[kind], mode="json"),
        }
        for kind in KINDS
    }


@pytest.fixture(scope="session")
def found(job):
    """What was found, by engine."""
    known = {}

    def ask(engine):
        if engine not in known:
            known[engine] = tried(job, engine)
        return known[engine]

    return ask


BOTH = ["transformers", pytest.param("vllm", marks=pytest.mark.vllm)]


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("engine", BOTH)
def test_after_each_sync_the_engine_is_one_that_began_with_the_version(
    found, models, engine, kind, method
):
    of_kind = found(engine)[kind]
    syncs = SYNCED[-2:] if method == "checkpoint" else SYNCED
    for version, after in zip(syncs, of_kind[method]["synced"], strict=True):
        # `checkpoint` builds a new vLLM for each, and transformers is held to itself below.
        fresh = of_kind["checkpoint"]["synced"][version]
        assert after == fresh
        model = models[kind][version]
        assert after["score"] == pytest.approx(logprobs_of(model, PROBE_IDS), abs=1e-5)
        for prompt_ids, (tokens, logprobs) in zip(PROMPTS, after["sampled"], strict=True):
            expected = completion_logprobs(model, prompt_ids, tokens, GREEDY)
            assert logprobs == pytest.approx(expected, abs=1e-4)
    assert of_kind[method]["calls"][-1] == ("restart" if method == "checkpoint" else "load")


@pytest.mark.parametrize("fault", REFUSED)
@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("engine", BOTH)
def test_a_planted_fault_is_refused(found, engine, kind, method, fault):
    said = found(engine)[kind][method]["faults"][fault]
    assert re.search(REFUSED[fault], said)
    assert said.endswith("holds None")


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("engine", BOTH)
def test_what_was_refused_shows_in_no_log_probability(found, models, engine, kind, method):
    """So the probe alone would have let it pass."""
    before, after = (logprobs_of(models[kind][version], PROBE_IDS) for version in (1, SUBTLE))
    assert 0 < max(abs(a - b) for a, b in zip(before, after, strict=True)) < TOLERANCE / 2
    recovered = found(engine)[kind][method]["recovered"]
    assert recovered["score"] == pytest.approx(after, abs=1e-5)
    assert recovered == found(engine)[kind]["checkpoint"]["recovered"]


@pytest.mark.vllm
@pytest.mark.parametrize("kind", KINDS)
def test_a_prefix_cache_that_is_not_emptied_does_no_harm(found, kind):
    of_vllm = found("vllm")[kind]["vllm"]
    assert of_vllm["stale prefixes"] == of_vllm["v0"]
    assert of_vllm["prefixes not forgotten"].startswith("EngineError: vLLM did not empty")


@pytest.mark.vllm
def test_an_adapter_under_the_number_of_another_is_refused(found):
    said = found("vllm")["adapter"]["vllm"]["reused number"]
    assert re.search(r"WeightsMismatchError: .*v2.*other or missing: model\.layers", said)


@pytest.mark.vllm
@pytest.mark.parametrize("kind", KINDS)
def test_each_process_of_a_vllm_that_is_spread_out_compares_its_part(
    found_spread_out, models, kind
):
    for method in ("reload", "volume"):
        of_method = found_spread_out[kind][method]
        for version, after in zip(SYNCED, of_method["synced"], strict=True):
            expected = logprobs_of(models[kind][version], PROBE_IDS)
            assert after["score"] == pytest.approx(expected, abs=1e-5)
        assert of_method["calls"] == ["load"], "nothing was started anew"
        for fault, refused in REFUSED.items():
            assert re.search(refused, of_method["faults"][fault])


@pytest.fixture(scope="session")
def found_spread_out(job, tmp_path_factory):
    with pytest.MonkeyPatch.context() as patched:
        for name, value in SPREAD_ENV.items():
            patched.setenv(name, value)
        methods = ["reload", "volume"]
        return tried({**job, "methods": methods, "options": SPREAD}, "vllm", timeout_s=480)
