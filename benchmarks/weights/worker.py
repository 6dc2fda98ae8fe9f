"""A worker's side: a line of JSON to start with, then one for each version to sync to.

Run as a script by the interpreter that has its engine.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

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
        began, began_cpu = time.perf_counter(), time.process_time()
        found = self._score(token_ids)
        self.wall_s, self.cpu_s = time.perf_counter() - began, time.process_time() - began_cpu
        return found


def _sync(worker: RolloutWorker, canary: Canary, request: dict[str, Any]) -> dict[str, Any]:
    began, began_cpu, began_read = time.perf_counter(), time.process_time(), _bytes_read()
    worker.sync_weights(weights=WeightsRef(**request))
    return {
        "load_s": time.perf_counter() - began - canary.wall_s,
        "load_cpu_s": time.process_time() - began_cpu - canary.cpu_s,
        "canary_s": canary.wall_s,
        "load_read": _bytes_read() - began_read,
        "own_bytes": 1024 * _number("status", "RssAnon"),
        "peak_bytes": 1024 * _number("status", "VmHWM"),
    }


def _bytes_read() -> int:
    """Return what this process got from `read`; mapped files are no part of that."""
    return _number("io", "rchar")


def _number(file: str, name: str) -> int:
    """Return what the system says of this process under that name."""
    lines = Path("/proc/self", file).read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(f"{name}:"))


if __name__ == "__main__":
    main()
