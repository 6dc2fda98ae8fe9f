"""A worker's side: a line of JSON to start with, then one for each version to sync to.

Run as a script by the interpreter that has its engine.
"""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path
from typing import Any

from mortal_steps.config import RunConfig
from mortal_steps.rollout.worker import RolloutWorker
from mortal_steps.types import WeightsRef


def main() -> None:
    # What engines print is no answer.
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    job = json.loads(sys.stdin.readline())
    config = RunConfig.model_validate(job["config"])
    worker = RolloutWorker(run_dir=job["run_dir"], config=config, model_path=job["model_path"])
    worker.start()
    print("{}", file=answers, flush=True)
    for line in sys.stdin:
        print(json.dumps(_sync(worker, json.loads(line), job)), file=answers, flush=True)


def _sync(worker: RolloutWorker, request: dict[str, Any], job: dict[str, Any]) -> dict[str, Any]:
    began, began_cpu, began_read = time.perf_counter(), time.process_time(), _bytes_read()
    worker.sync_weights(weights=WeightsRef(**request))
    whole_s, cpu_s = time.perf_counter() - began, time.process_time() - began_cpu
    num_read = _bytes_read() - began_read
    probe = json.loads((Path(job["run_dir"]) / request["path"] / "probe.json").read_bytes())
    began, began_cpu = time.perf_counter(), time.process_time()
    worker._started_engine().score(probe["token_ids"])  # once more, to be timed alone
    canary_s, canary_cpu_s = time.perf_counter() - began, time.process_time() - began_cpu
    return {
        "load_s": max(0.0, whole_s - canary_s),
        "load_cpu_s": max(0.0, cpu_s - canary_cpu_s),
        "canary_s": canary_s,
        "load_read": num_read,
    }


def _bytes_read() -> int:
    """What this process got from `read`; what it reads of mapped files is not part of that."""
    lines = Path("/proc/self/io").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("rchar"))


if __name__ == "__main__":
    main()
