"""vLLM's own workers, killed with SIGKILL while they load a version and before it is proven: the
next worker samples the bits of one that nobody killed. With transformers it is
integration/rollout/test_killed_syncs.py."""

import signal
from itertools import product

import pytest
from pydantic import TypeAdapter

from mortal_steps.store import RunStore
from mortal_steps.types import FileRef, Problem, WeightsRef
from tests.support.rollout.adapters import make_adapter, publish_adapter
from tests.support.rollout.asked import asked
from tests.support.rollout.planted import KINDS, METHODS
from tests.support.rollout.tiny_model import build_tiny_model, publish

PROBLEMS = [Problem(id=f"train-{row}", prompt=f"{row}abc=>") for row in range(2)]
DRIVER = "tests.support.rollout.killed_vllm"
STAGES = ("while it loads", "after it loaded")


@pytest.fixture(scope="module")
def found(model_a, tmp_path_factory):
    other = build_tiny_model(tmp_path_factory.mktemp("model_b"), seed=2)
    stores, job = {kind: RunStore(tmp_path_factory.mktemp(kind)) for kind in KINDS}, {}
    for kind, store in stores.items():
        if kind == "model":
            folders = enumerate((model_a, other))
            versions = [publish(store, n, folder) for n, folder in folders]
        else:
            adapters = enumerate(make_adapter(model_a, seed) for seed in (1, 2))
            versions = [publish_adapter(store, n, adapter) for n, adapter in adapters]
        batch = store.write_record("batch.json", PROBLEMS, list[Problem])
        job[kind] = {
            "run_dir": str(store.root),
            "base": str(model_a),
            "versions": TypeAdapter(list[WeightsRef]).dump_python(versions, mode="json"),
            "batch": TypeAdapter(FileRef).dump_python(batch, mode="json"),
        }
    answer, _ = asked(DRIVER, job, timeout_s=900)
    return answer


@pytest.mark.parametrize(("method", "stage"), list(product(METHODS, STAGES)))
@pytest.mark.parametrize("kind", KINDS)
def test_the_next_worker_samples_the_same_bits(found, kind, method, stage):
    ended, left, again, sampled = found[kind][f"{method} {stage}"]
    assert (ended, left, again) == (signal.SIGKILL, None, 0)
    assert sampled == found[kind]["undisturbed"] is not None


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("kind", KINDS)
def test_a_worker_that_slept_samples_the_same_bits(found, kind, method):
    ended, *sampled = found[kind][f"{method} slept"]
    assert ended == 0
    assert sampled == [found[kind]["undisturbed"]] * 2
