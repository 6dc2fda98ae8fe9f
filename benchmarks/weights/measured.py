"""One size of model in one folder: an actor's side of the measurement, which starts a worker."""

import dataclasses
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
from peft import LoraConfig, get_peft_model
from transformers.utils.logging import disable_progress_bar

from benchmarks.weights.shapes import build
from benchmarks.weights.sides import Policy, Worker, timed
from mortal_steps.data.problem_files import keep_problems
from mortal_steps.plan.run_config import RunConfig
from mortal_steps.policy.publishing import Publisher
from mortal_steps.store import RunStore, shared_memory
from mortal_steps.system.threads import BackgroundClock
from mortal_steps.types import Problem

PIECE_BYTES = 1 << 20
MODULES = ["q_proj", "k_proj", "v_proj", "o_proj"]
"""What an adapter adapts."""


def measure(job: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the rounds of each method, beside a plain write and read of as many bytes."""
    torch.set_num_threads(job["threads"])
    disable_progress_bar()
    folder = Path(job["folder"])
    model, tokenizer = build(job["size"], folder / "model")
    if job["rank"]:
        adapter = LoraConfig(task_type="CAUSAL_LM", r=job["rank"], target_modules=MODULES)
        model = get_peft_model(model, adapter).eval()
    policy = Policy(model, tokenizer)
    return [
        {"method": method, **found}
        for method in job["methods"]
        for found in versions(
            job, method, folder, policy, lambda: _plain(policy.trained, folder / "plain")
        )
    ]


def versions(
    job: dict[str, Any],
    method: str,
    folder: Path,
    policy: Policy,
    beforehand: Callable[[], dict[str, float]],
) -> list[dict[str, Any]]:
    """Return what each of the job's rounds took, and what was measured of its weights beforehand.
    One more round comes first: it starts the engine's paths, and takes new memory."""
    lora = {"r": job["rank"], "target_modules": MODULES, "publish": "adapter"}
    config = RunConfig.model_validate(
        {
            "model": {"dtype": job["dtype"], "max_model_len": 128},
            "rollout": {
                "engine": job["engine"],
                "engine_options": job["engine_options"],
                "weight_sync": method,
                "canary_tolerance": job["canary_tolerance"],
            },
            "training": {"use_lora": True, "lora": lora} if job["rank"] else {},
        }
    )
    store = RunStore(folder / f"run-{method}")
    keep_problems(store, [Problem(id="a", prompt="abcdefgh")], [])
    worker = Worker(job["worker_python"], store.root, config, folder / "model")
    publisher = Publisher(store, config.rollout, config.model, config.training, BackgroundClock())
    found = []
    for number in range(job["rounds"] + 1):
        for tensor in policy.trained:
            tensor.mul_(1.01).add_(1e-4)  # part of an adapter begins at 0
        before = beforehand() if number else {}
        found.append({**before, **_sync(publisher, policy, worker, number)})
        store.holding(f"weights/v{number}").remove_folder(f"weights/v{number}")
    worker.end()
    shared_memory.remove_folder(store.root)
    return found[1:]


def _plain(tensors: Sequence[torch.Tensor], path: Path) -> dict[str, float]:
    """Measure what the machine needs for as many bytes: one write out of memory, and one read into
    memory that is there."""
    views = [memoryview(t.reshape(-1).view(torch.uint8).numpy()) for t in tensors]
    piece = bytearray(PIECE_BYTES)

    def write() -> None:
        with path.open("wb", buffering=0) as file:
            for view in views:
                rest = view
                while rest:
                    rest = rest[file.write(rest) :]

    def read() -> None:
        with path.open("rb", buffering=0) as file:
            while file.readinto(piece):
                pass

    found: dict[str, float] = {"num_bytes": sum(map(len, views))}
    for name, action in {"write": write, "read": read}.items():
        found[f"plain_{name}_s"], found[f"plain_{name}_cpu_s"], _ = timed(action)
    path.unlink()
    return found


def _sync(publisher: Publisher, policy: Any, worker: Worker, version: int) -> dict[str, Any]:
    began_io = _io()
    publish_s, publish_cpu_s, reference = timed(lambda: publisher.publish(policy, version))
    ended_io = _io()
    answer = worker.ask(dataclasses.asdict(reference))
    settle_s, _, _ = timed(publisher.finish)
    return {
        "publish_s": publish_s - policy.score_s,
        "publish_cpu_s": publish_cpu_s - policy.score_cpu_s,
        "score_s": policy.score_s,
        "settle_s": settle_s,
        "publish_written": ended_io["wchar"] - began_io["wchar"],
        "publish_read": ended_io["rchar"] - began_io["rchar"],
        **answer,
    }


def _io() -> dict[str, int]:
    """Bytes that this process has passed to `write` and got from `read`, page cache included."""
    lines = Path("/proc/self/io").read_text().splitlines()
    return {name: int(value) for name, _, value in (line.partition(":") for line in lines)}
