"""An actor's side of a version on its way: digest, publish, and a worker that loads and proves it.

python -m benchmarks.gpu_check.exchange '{"folder": "/tmp/x", "size": 0.01, "dtype": "float32",
    "method": "volume", "engine": "transformers", "worker_python": "python"}'
"""

from __future__ import annotations

import dataclasses
import json
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.gpu_check.checked import Checked, Found, Options, check_one, figures, in_words
from mortal_steps.plan.run_config import RunConfig

ROUNDS = 2


def check(
    part: str, folder: Path, options: Options, size: float, dtype: str, methods: Sequence[str]
) -> Iterator[Checked]:
    """Yield a check for each way of syncing, which passes where it runs, alone in memory."""
    python = options.engines[options.sampler]
    for method in methods:

        def look(method: str = method) -> Found:
            answer = options.ask(
                options.trainer,
                "exchange",
                folder / method,
                size=size,
                dtype=dtype,
                method=method,
                engine=options.sampler,
                worker_python=python,
            )
            return _in_words(answer)

        yield check_one(part, f"{size}B in {dtype}, {method}: a version", look)


def _in_words(answer: Mapping[str, Any]) -> Found:
    stages = ("digest", "publish", "load", "canary")
    found = figures("s", **{name: answer[f"{name}_s"] for name in stages})
    words = f"{in_words(found)} (load with proof); {answer['bytes'] / 1e9:.2f} GB"
    return Found(measured=words, figures=found)


def main(job: dict[str, Any]) -> dict[str, Any]:
    """Seconds of the last of some versions."""
    import torch

    from benchmarks.weights.shapes import build
    from benchmarks.weights.sides import Policy, Worker
    from mortal_steps.data.problem_files import keep_problems
    from mortal_steps.policy.algorithms.stepping import digests
    from mortal_steps.policy.publishing import Publisher
    from mortal_steps.store import RunStore, shared_memory
    from mortal_steps.system.threads import BackgroundClock
    from mortal_steps.types import Problem

    folder = Path(job["folder"])
    device = "cuda" if torch.cuda.is_available() else "cpu"
    model, tokenizer = build(job["size"], folder / "model", dtype=job["dtype"], device=device)
    config = _config(job)
    store = RunStore(folder / "run")
    keep_problems(store, [Problem(id="a", prompt="abcdefgh")], [])
    policy: Any = Policy(model, tokenizer)
    publisher = Publisher(store, config.rollout, config.model, config.training, BackgroundClock())
    worker = Worker(job["worker_python"], store.root, config, folder / "model")
    for number in range(ROUNDS):
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.mul_(1.0 + 1e-2)
        digest_s = _seconds(lambda: digests.weights_digest(model))
        began = time.perf_counter()
        version = publisher.publish(policy, number)
        publish_s = time.perf_counter() - began - policy.score_s
        given = dataclasses.asdict(version)
        answer = worker.ask({name: value for name, value in given.items() if value is not None})
        store.holding(version.path).remove_folder(version.path)
    worker.end()
    shared_memory.remove_folder(store.root)
    size = sum(p.numel() * p.element_size() for p in model.parameters())
    return {"digest_s": digest_s, "publish_s": publish_s, "bytes": size, **answer}


def _config(job: Mapping[str, Any]) -> RunConfig:
    is_vllm = job["engine"] == "vllm"
    rollout = {
        "engine": job["engine"],
        "weight_sync": job["method"],
        "canary_tolerance": 1.0,
        "engine_options": {"gpu_memory_utilization": 0.4} if is_vllm else {},
    }
    model = {"dtype": job["dtype"], "max_model_len": 128}
    return RunConfig.model_validate({"model": model, "rollout": rollout})


def _seconds(action: Any) -> float:
    began = time.perf_counter()
    action()
    return time.perf_counter() - began


if __name__ == "__main__":
    answer = main(json.loads(sys.argv[1]))
    sys.stdout.write("\n" + json.dumps(answer) + "\n")
