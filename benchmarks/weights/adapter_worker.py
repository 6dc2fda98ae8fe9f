"""A rollout worker that takes one version of an adapter after the other.

Run as a script by the interpreter that has its engine.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

from mortal_steps.config import RunConfig
from mortal_steps.rollout.engines.base import Engine
from mortal_steps.rollout.weight_sync.base import WeightSync, weight_sync
from mortal_steps.rollout.weight_sync.canary import published_in
from mortal_steps.rollout.weight_sync.published import check_loaded
from mortal_steps.rollout.worker import RolloutWorker
from mortal_steps.store import RunStore
from mortal_steps.types import PolicyVersion, WeightsRef


def main() -> None:
    job = json.loads(sys.argv[1])
    folder = Path(job["folder"])
    config = RunConfig.model_validate(
        {"rollout": {"engine": job["engine"]}, "training": {"use_lora": True, "lora": job["lora"]}}
    )
    run_dir, model_path = str(folder / "run"), str(folder / "base")
    worker = RolloutWorker(run_dir=run_dir, config=config, model_path=model_path)
    engine, sync = worker._started_engine(), weight_sync(config.rollout)
    store, rows = RunStore(folder / "run"), []
    for number, path in enumerate(job["paths"]):
        digest = store.folder_digest(path)
        weights = WeightsRef(version=PolicyVersion(number), path=path, sha256=digest)
        rows.append(_sync(store, engine, sync, weights, job["probe"]))
    (folder / "loaded.json").write_text(json.dumps(rows))


def _sync(
    store: RunStore, engine: Engine, sync: WeightSync, weights: WeightsRef, probe: list[int]
) -> dict[str, float]:
    """What `load_weights` does, the canary's forward pass timed by itself."""
    began, began_cpu = time.perf_counter(), time.process_time()
    folder = store.verify_folder(weights.path, weights.sha256)
    engine.check(folder)
    sync.load(engine, folder)
    check_loaded(engine.compare(published_in(folder)), str(folder))
    load_s, load_cpu_s = time.perf_counter() - began, time.process_time() - began_cpu
    began = time.perf_counter()
    found = engine.score(probe)
    canary_s = time.perf_counter() - began
    expected = json.loads((folder / "probe.json").read_bytes())["logprobs"]
    differs = max(abs(a - b) for a, b in zip(found, expected, strict=True))
    return {
        "load_s": load_s,
        "load_cpu_s": load_cpu_s,
        "canary_s": canary_s,
        "differs_nats": differs,
    }


if __name__ == "__main__":
    main()
