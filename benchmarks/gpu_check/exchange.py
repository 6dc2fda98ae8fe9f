"""An actor's side of a version on its way: digest, publish, and a worker that loads and proves it.

python -m benchmarks.gpu_check.exchange '{"folder": "/tmp/x", "size": 0.01, "dtype": "float32",
    "method": "volume", "engine": "transformers", "worker_python": "python"}'
"""

from __future__ import annotations

import dataclasses
import json
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.gpu_check.checked import ROOT, Checked, Found, Options, check_one
from mortal_steps.config import RunConfig

ROUNDS = 2
WORKER = ROOT / "benchmarks/weights/worker.py"


def check(
    part: str, folder: Path, options: Options, size: float, dtype: str, methods: Sequence[str]
) -> Iterator[Checked]:
    """A check for each way of syncing; they pass where they run, and nothing else is in memory."""
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
    seconds = ", ".join(
        f"{name.removesuffix('_s')} {answer[name]:.2f}"
        for name in ("digest_s", "publish_s", "load_s", "canary_s")
    )
    words = f"seconds: {seconds} (load with proof); {answer['bytes'] / 1e9:.2f} GB"
    return Found(measured=words, numbers=answer)


class Policy:
    """A model where it is trained, as a `Publisher` takes it."""

    def __init__(self, model: Any, tokenizer: Any) -> None:
        self.model, self.tokenizer = model, tokenizer
        self.score_s = 0.0

    def export_weights(self, folder: Path) -> Any:
        """See `Stepper`."""
        from mortal_steps.policy.model_files.writing import save_model

        return save_model(self.model, folder)

    def published_digests(self) -> Any:
        """See `Stepper`."""
        from mortal_steps.policy.model_files.writing import published_tensors
        from mortal_steps.rollout.weight_sync.tensor_digests import tensor_digests

        return tensor_digests(published_tensors(self.model).items())

    def score(self, token_ids: Sequence[int]) -> list[float]:
        """See `Stepper`."""
        import torch

        began = time.perf_counter()
        ids = torch.tensor([list(token_ids)], device=self.model.device)
        with torch.no_grad():
            logits = self.model(input_ids=ids, use_cache=False).logits[0, :-1].float()
        found: list[float] = logits.log_softmax(-1).gather(1, ids[0, 1:, None]).squeeze(1).tolist()
        self.score_s = time.perf_counter() - began
        return found


def main(job: dict[str, Any]) -> dict[str, Any]:
    """Seconds of the last of some versions."""
    import torch

    from benchmarks.weights.shapes import build
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
    answers = _Worker(job["worker_python"], store.root, config, folder / "model")
    for number in range(ROUNDS):
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.mul_(1.0 + 1e-2)
        digest_s = _seconds(lambda: digests.weights_digest(model))
        began = time.perf_counter()
        version = publisher.publish(policy, number)
        publish_s = time.perf_counter() - began - policy.score_s
        told = answers.ask(dataclasses.asdict(version))
        store.holding(version.path).remove_folder(version.path)
    answers.end()
    shared_memory.remove_folder(store.root)
    size = sum(p.numel() * p.element_size() for p in model.parameters())
    return {"digest_s": digest_s, "publish_s": publish_s, "bytes": size, **told}


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


class _Worker:
    """A rollout worker in a process of its own, by benchmarks/weights/worker.py."""

    def __init__(self, python: str, run_dir: Path, config: RunConfig, model: Path) -> None:
        self._process = subprocess.Popen(
            [python, str(WORKER)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        job = {"run_dir": str(run_dir), "config": config.model_dump(mode="json")}
        self.ask({**job, "model_path": str(model)})

    def ask(self, request: Mapping[str, Any]) -> dict[str, Any]:
        assert self._process.stdin is not None and self._process.stdout is not None
        given = {name: value for name, value in request.items() if value is not None}
        self._process.stdin.write(json.dumps(given) + "\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError("the rollout worker has ended; its last lines are above")
        answer: dict[str, Any] = json.loads(line)
        return answer

    def end(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait()


if __name__ == "__main__":
    answer = main(json.loads(sys.argv[1]))
    sys.stdout.write("\n" + json.dumps(answer) + "\n")
