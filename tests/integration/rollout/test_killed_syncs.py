"""A worker that is killed while it takes a version: the next one samples the same bits."""

from __future__ import annotations

import os
import signal

import pytest

from mortal_steps.plan.parts import Plan
from mortal_steps.rollout.worker import RolloutWorker
from mortal_steps.store import RunStore
from mortal_steps.types import GenerateRequest, Problem, SamplingParams
from tests.support.killed import killed_in_a_fork
from tests.support.rollout.adapters import make_adapter, publish_adapter
from tests.support.rollout.planted import KINDS, METHODS, Delivery, config_of
from tests.support.rollout.tiny_model import publish

PROBLEMS = [Problem(id=f"train-{row}", prompt=f"{row}abc=>") for row in range(2)]


@pytest.fixture(scope="module")
def runs(model_a, model_b, tmp_path_factory):
    """By kind: a run with two versions and its problems, and the digest of what v1 samples."""
    made = {}
    for kind in KINDS:
        store = RunStore(tmp_path_factory.mktemp(kind))
        batch = store.write_record("batch.json", PROBLEMS, list[Problem])
        if kind == "model":
            folders = (model_a, model_b)
            versions = [publish(store, n, folder) for n, folder in enumerate(folders)]
        else:
            adapters = [make_adapter(model_a, seed) for seed in (1, 2)]
            versions = [publish_adapter(store, n, adapter) for n, adapter in enumerate(adapters)]
        made[kind] = store, batch, versions
    return made


def worker_for(store, model, kind, method):
    config = config_of("transformers", kind, method)
    return RolloutWorker(run_dir=str(store.root), model_path=str(model), plan=Plan(config).sampler)


def request(batch, weights, output):
    return GenerateRequest(
        stage="generate",
        step=1,
        shard=0,
        problems=batch,
        start=0,
        stop=2,
        num_generations=2,
        sampling=SamplingParams(max_tokens=6),
        weights=weights,
        output=output,
    )


@pytest.fixture(scope="module")
def undisturbed(runs, model_a):
    found = {}
    for kind, (store, batch, versions) in runs.items():
        worker = worker_for(store, model_a, kind, "reload")
        found[kind] = worker.generate(request=request(batch, versions[1], "whole.parquet"))
    return {kind: reference.file.sha256 for kind, reference in found.items()}


def killed_in_mid_sync(runs, model, kind, method, stage, output):
    """The worker holds v0, is asked for a shard of v1, and dies while it takes v1."""
    store, batch, versions = runs[kind]

    def sync():
        worker = worker_for(store, model, kind, method)
        worker.start()
        delivery = Delivery(worker._engine)
        worker.sync_weights(weights=versions[0])
        if stage == "before its engine has it":
            delivery.alter = lambda given: os.kill(os.getpid(), signal.SIGKILL)
        else:
            worker._engine.score = lambda ids: os.kill(os.getpid(), signal.SIGKILL)
        worker.generate(request=request(batch, versions[1], output))

    killed_in_a_fork(sync)
    assert not store.path(output).exists()


@pytest.mark.parametrize("stage", ["before its engine has it", "before it is proven"])
@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("kind", KINDS)
def test_the_next_worker_samples_the_same_bits(runs, undisturbed, model_a, kind, method, stage):
    output = f"{method}-{stage[-6:]}.parquet"
    killed_in_mid_sync(runs, model_a, kind, method, stage, output)
    store, batch, versions = runs[kind]
    second = worker_for(store, model_a, kind, method)
    reference = second.generate(request=request(batch, versions[1], output))
    assert reference.file.sha256 == undisturbed[kind]
