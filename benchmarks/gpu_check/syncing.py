"""Each engine with each way of syncing weights, against fresh engines and against each other: one
engine in a process of its own."""

import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.gpu_check.checked import Checked, Found, Options, check_one
from mortal_steps.plan.parts import Plan
from mortal_steps.plan.run_config import RunConfig
from mortal_steps.rollout.engines.table import ENGINES
from mortal_steps.rollout.weight_sync.table import WEIGHT_SYNC
from mortal_steps.rollout.worker import RolloutWorker
from mortal_steps.store import RunStore
from mortal_steps.types import SamplingParams, WeightsRef
from tests.support.rollout.cases import PROBE_IDS, PROMPTS_IDS, seeds
from tests.support.rollout.tiny_model import build_tiny_model, publish

GREEDY = SamplingParams(max_tokens=24, temperature=0.0)
PART_OF_MEMORY = 0.5
"""Of the GPU's, for each engine: what the ones before it leave behind is not free."""
ENGINES_AGREE_NATS = 1e-3
"""Largest difference of log-probabilities in float32 that counts as rounding."""


def check(folder: Path, options: Options) -> Iterator[Checked]:
    """For each engine: a check of each way of syncing; then one of the engines' agreement."""
    answers: dict[str, dict[str, Any]] = {}
    for engine, python in options.engines.items():

        def look(engine: str = engine, python: str = python) -> Found:
            answers[engine] = options.ask("syncing:synced", folder, python=python, engine=engine)
            return Found()

        asked = check_one("syncing", engine, look)
        yield from _syncs(engine, answers[engine]) if asked.passed else [asked]
    if len(answers) > 1:
        yield _agreement(*answers.values())


def _syncs(engine: str, answer: Mapping[str, Any]) -> Iterator[Checked]:
    for method in WEIGHT_SYNC:
        synced = answer["synced"][method]
        if method in answer["slept"]:
            yield _slept(engine, method, answer["slept"][method], synced, answer["is_gpu"])
        off = max(
            _largest_difference(now, fresh)
            for now, fresh in zip(synced["scores"], answer["fresh"]["scores"], strict=True)
        )
        same_tokens = synced["greedy"] == answer["fresh"]["greedy"]
        yield Checked(
            part="syncing",
            name=f"{engine}, {method}: as a fresh engine",
            passed=same_tokens and off <= ENGINES_AGREE_NATS,
            took_s=synced["took_s"],
            measured=f"greedy tokens {'equal' if same_tokens else 'DIFFER'}, log-probabilities "
            f"{'equal' if off == 0 else f'off by {off:.1e} nats'}",
        )


def _slept(
    engine: str, method: str, slept: Mapping[str, Any], synced: Mapping[str, Any], is_gpu: bool
) -> Checked:
    """After a sleep the worker samples as one that never slept; on a GPU it gives memory back."""
    same = all(slept[key] == synced[key] for key in ("scores", "greedy"))
    freed = min(slept["freed"])
    memory = f"{freed / 1e9:.2f} GB given back" if is_gpu else "a CPU has no memory to give back"
    return Checked(
        part="syncing",
        name=f"{engine}, {method}: after a sleep as before",
        passed=same and (freed > 0 or not is_gpu),
        took_s=slept["took_s"],
        measured=f"tokens and log-probabilities {'equal' if same else 'DIFFER'}, {memory}",
    )


def _agreement(one: Mapping[str, Any], other: Mapping[str, Any]) -> Checked:
    pairs = zip(one["fresh"]["scores"], other["fresh"]["scores"], strict=True)
    off = max(_largest_difference(a, b) for a, b in pairs)
    return Checked(
        part="syncing",
        name="the two engines against each other",
        passed=off <= ENGINES_AGREE_NATS,
        took_s=0.0,
        measured=f"log-probabilities off by {off:.1e} nats in float32",
    )


def _largest_difference(ours: Sequence[float], theirs: Sequence[float]) -> float:
    return max(abs(a - b) for a, b in zip(ours, theirs, strict=True))


def synced(job: dict[str, Any]) -> dict[str, Any]:
    """Scores and greedy tokens with each of two versions, as `fresh` and for each way."""
    engine, folder = job["engine"], Path(job["folder"]) / job["engine"]
    models = [build_tiny_model(folder / f"model-{seed}", seed=seed) for seed in (1, 2)]
    store = RunStore(folder / "run")
    versions = [publish(store, number, model) for number, model in enumerate(models)]
    fresh = [
        _with_versions(engine, "checkpoint", store, model, [version])
        for model, version in zip(models, versions, strict=True)
    ]
    return {
        "is_gpu": _free_bytes() > 0,
        "fresh": {key: [one[key][0] for one in fresh] for key in ("scores", "greedy")},
        "synced": {
            method: _with_versions(engine, method, store, models[0], versions)
            for method in WEIGHT_SYNC
        },
        "slept": {
            method: _with_versions(engine, method, store, models[0], versions, sleeps=True)
            for method in WEIGHT_SYNC
            if ENGINES.entry(engine).sleeps
        },
    }


def _with_versions(
    engine: str,
    method: str,
    store: RunStore,
    model: Path,
    versions: list[WeightsRef],
    *,
    sleeps: bool = False,
) -> dict[str, Any]:
    """With `sleeps` the worker sleeps after each version, as it does while the actor trains."""
    memory = ENGINES.entry(engine).memory_option
    rollout = {
        "engine": engine,
        "weight_sync": method,
        "sleep_while_training": sleeps,
        "engine_options": {memory: PART_OF_MEMORY} if memory else {},
    }
    config = RunConfig.model_validate({"rollout": rollout, "model": {"max_model_len": 512}})
    worker = RolloutWorker(
        run_dir=str(store.root), model_path=str(model), plan=Plan(config).sampler
    )
    worker.start()
    found: dict[str, Any] = {"scores": [], "greedy": [], "took_s": 0.0, "freed": []}
    for version in versions:
        began = time.perf_counter()
        worker.sync_weights(weights=version)
        found["took_s"] += time.perf_counter() - began
        running = worker._engine
        assert running is not None
        found["scores"].append(running.score(PROBE_IDS))
        sampled = running.sample(PROMPTS_IDS, seeds(len(PROMPTS_IDS)), GREEDY)
        found["greedy"].append([list(one.token_ids) for one in sampled])
        if sleeps:
            free = _free_bytes()
            worker.sleep()
            found["freed"].append(_free_bytes() - free)
    assert worker._engine is not None
    worker._engine.close()
    return found


def _free_bytes() -> int:
    """Of the GPU's memory; 0 where there is none."""
    import torch

    return torch.cuda.mem_get_info()[0] if torch.cuda.is_available() else 0
