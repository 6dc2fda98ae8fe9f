"""A worker's side: a line of JSON to start with, then one for each version to sync to."""

import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.weights.sides import timed
from mortal_steps.plan.parts import Plan
from mortal_steps.plan.run_config import RunConfig
from mortal_steps.rollout.worker import RolloutWorker
from mortal_steps.types import WeightsRef


def main() -> None:
    # What engines print is no answer.
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    job = json.loads(sys.stdin.readline())
    config = RunConfig.model_validate(job["config"])
    worker = RolloutWorker(
        run_dir=job["run_dir"], model_path=job["model_path"], plan=Plan(config).sampler
    )
    worker.start()
    engine: Any = worker._started_engine()
    canary = engine.score = Canary(engine)
    print("{}", file=answers, flush=True)
    for line in sys.stdin:
        print(json.dumps(_sync(worker, canary, json.loads(line))), file=answers, flush=True)


class Canary:
    """An engine's `score`, which notes how long it takes."""

    def __init__(self, engine: Any) -> None:
        self._score = engine.score
        self.wall_s = self.cpu_s = 0.0

    def __call__(self, token_ids: Sequence[int]) -> Any:
        self.wall_s, self.cpu_s, found = timed(lambda: self._score(token_ids))
        return found


def _sync(worker: RolloutWorker, canary: Canary, request: dict[str, Any]) -> dict[str, Any]:
    began_read = _number("io", "rchar")  # what is got from `read`; mapped files are no part of it
    weights = WeightsRef(**request)
    wall_s, cpu_s, _ = timed(lambda: worker.sync_weights(weights=weights))
    return {
        "load_s": wall_s - canary.wall_s,
        "load_cpu_s": cpu_s - canary.cpu_s,
        "canary_s": canary.wall_s,
        "load_read": _number("io", "rchar") - began_read,
        "own_bytes": 1024 * _number("status", "RssAnon"),
        "peak_bytes": 1024 * _number("status", "VmHWM"),
    }


def _number(file: str, name: str) -> int:
    """Return what the system says of this process under that name."""
    lines = Path("/proc/self", file).read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(f"{name}:"))


if __name__ == "__main__":
    main()
