"""One size of model in one place: an actor's side of the measurement, which starts a worker.

Run as a script, so that the packages of another commit can be measured with it (PYTHONPATH).
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
from blake3 import blake3
from shapes import build  # type: ignore[import-not-found]  # beside this script
from transformers.utils.logging import disable_progress_bar

from mortal_steps.config import RunConfig
from mortal_steps.data.problem_files import keep_problems
from mortal_steps.policy.publishing import Publisher
from mortal_steps.store import RunStore
from mortal_steps.types import Problem

try:
    from mortal_steps.policy.model_files import writing as export
except ModuleNotFoundError:  # where the code of older commits has it
    from mortal_steps.policy import export  # type: ignore[attr-defined,no-redef]

PIECE_BYTES = 1 << 20


class Policy:
    """A model as a `Publisher` takes it, which notes how long its own part of the canary took."""

    def __init__(self, model: Any, tokenizer: Any) -> None:
        self.model, self.tokenizer = model, tokenizer
        self.score_s = self.score_cpu_s = 0.0

    def export_weights(self, folder: Path) -> Any:
        """See `Stepper`."""
        return export.save_model(self.model, folder)

    def published_digests(self) -> dict[str, str]:
        """See `Stepper`."""
        # Imported where used: older code has no such module.
        from mortal_steps.rollout.weight_sync.tensor_digests import tensor_digests

        return tensor_digests(export.published_tensors(self.model).items())

    def score(self, token_ids: Sequence[int]) -> list[float]:
        """See `Stepper`."""
        began, began_cpu = time.perf_counter(), time.process_time()
        ids = torch.tensor([list(token_ids)])
        with torch.no_grad():
            logits = self.model(input_ids=ids, use_cache=False).logits[0, :-1].float()
        found = logits.log_softmax(-1).gather(1, ids[0, 1:, None]).squeeze(1).tolist()
        self.score_s = time.perf_counter() - began
        self.score_cpu_s = time.process_time() - began_cpu
        return found


class Worker:
    """A rollout worker in a process of its own."""

    def __init__(self, python: str, run_dir: Path, config: RunConfig, model_path: Path) -> None:
        job = {"run_dir": str(run_dir), "config": config.model_dump(mode="json")}
        self._process = subprocess.Popen(
            [python, str(Path(__file__).with_name("worker.py"))],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self.ask({**job, "model_path": str(model_path)})

    def ask(self, request: dict[str, Any]) -> dict[str, Any]:
        """Its answer to a request in JSON; raises `RuntimeError` if it ended."""
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.write(json.dumps(request) + "\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError("the worker has ended; its last lines are above")
        answer: dict[str, Any] = json.loads(line)
        return answer

    def end(self) -> None:
        """Wait for its end."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait()


def main() -> None:
    job = json.loads(sys.argv[1])
    torch.set_num_threads(job["threads"])
    disable_progress_bar()
    place = Path(job["place"])
    model, tokenizer = build(job["size"], place / "model")
    policy = Policy(model, tokenizer)
    rounds = []
    for method in job["methods"]:
        rounds += _method(job, method, place, policy)
    Path(job["output"]).write_text(json.dumps(rounds))


def _method(job: dict[str, Any], method: str, place: Path, policy: Policy) -> list[dict[str, Any]]:
    config = RunConfig.model_validate(
        {
            "model": {"dtype": "float32", "max_model_len": 128},
            "rollout": {
                "engine": job["engine"],
                "weight_sync": method,
                "canary_tolerance": 1e-2,
            },
        }
    )
    store = RunStore(place / f"run-{method}")
    keep_problems(store, [Problem(id="a", prompt="abcdefgh")], [])
    worker = Worker(job["python"], store.root, config, place / "model")
    publisher = _publisher(store, config)
    found = []
    for number in range(job["rounds"] + 1):
        tensors = [p.detach() for p in policy.model.parameters()]
        for tensor in tensors:
            tensor.mul_(1.0 + 1e-4)
        plain = {} if number == 0 else _plain(tensors, place / "plain")
        measured = _sync(publisher, policy, worker, number)
        there = getattr(store, "in_memory", store) if method == "direct" else store
        there.remove_folder(f"weights/v{number}")
        if number:  # the first one starts the engine's paths, and takes new memory
            found.append({"method": method, **plain, **measured})
    worker.end()
    if method == "direct":
        # Imported where used: earlier code has no such module.
        from mortal_steps.store import shared_memory

        shared_memory.remove_folder(store.root)
    return found


def _publisher(store: RunStore, config: RunConfig) -> Publisher:
    try:
        # Imported where used: earlier code has no such module.
        from mortal_steps.system.threads import BackgroundClock
    except ModuleNotFoundError:
        return Publisher(store, config)  # type: ignore[call-arg,arg-type]
    return Publisher(store, config.rollout, config.model, config.training, BackgroundClock())


def _plain(tensors: Sequence[torch.Tensor], path: Path) -> dict[str, float]:
    """What the machine needs for as many bytes: one copy in memory, one comparison and one hash,
    each by all threads; one write out of memory, and one read into memory that is there."""
    views = [memoryview(t.reshape(-1).view(torch.uint8).numpy()) for t in tensors]
    return {
        "num_bytes": sum(map(len, views)),
        **_plain_in_memory(tensors, views),
        **_plain_on_disk(views, path),
    }


def _plain_in_memory(
    tensors: Sequence[torch.Tensor], views: Sequence[memoryview]
) -> dict[str, float]:
    copies = [torch.empty_like(tensor) for tensor in tensors]

    def copy() -> None:
        for target, tensor in zip(copies, tensors, strict=True):
            target.copy_(tensor)

    def compare() -> None:
        for target, tensor in zip(copies, tensors, strict=True):
            assert torch.equal(target.view(torch.int32), tensor.view(torch.int32))

    def hash_all() -> None:
        hasher = blake3(max_threads=torch.get_num_threads())
        for view in views:
            hasher.update(view)

    copy()  # the system gives memory when it is first written to
    actions = {"copy": copy, "compare": compare, "hash": hash_all}
    return {f"plain_{name}_s": _timed(action)[0] for name, action in actions.items()}


def _plain_on_disk(views: Sequence[memoryview], path: Path) -> dict[str, float]:
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

    found = {}
    for name, action in {"write": write, "read": read}.items():
        found[f"plain_{name}_s"], found[f"plain_{name}_cpu_s"], _ = _timed(action)
    path.unlink()
    return found


def _sync(publisher: Publisher, policy: Any, worker: Worker, version: int) -> dict[str, Any]:
    began_io = _io()
    publish_s, publish_cpu_s, reference = _timed(lambda: publisher.publish(policy, version))
    ended_io = _io()
    request = {"path": reference.path, "sha256": reference.sha256, "version": version}
    answer = worker.ask(request)
    finish = getattr(publisher, "finish", lambda: None)  # what older code does before it answers
    settle_s, _, _ = _timed(finish)
    return {
        "publish_s": publish_s - policy.score_s,
        "publish_cpu_s": publish_cpu_s - policy.score_cpu_s,
        "score_s": policy.score_s,
        "settle_s": settle_s,
        "publish_written": ended_io["wchar"] - began_io["wchar"],
        "publish_read": ended_io["rchar"] - began_io["rchar"],
        **answer,
    }


def _timed(action: Callable[[], Any]) -> tuple[float, float, Any]:
    """Seconds, CPU seconds of this process, and what it returns."""
    began, began_cpu = time.perf_counter(), time.process_time()
    value = action()
    return time.perf_counter() - began, time.process_time() - began_cpu, value


def _io() -> dict[str, int]:
    """Bytes that this process has passed to `write` and got from `read`, page cache included."""
    lines = Path("/proc/self/io").read_text().splitlines()
    return {name: int(value) for name, _, value in (line.partition(":") for line in lines)}


if __name__ == "__main__":
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    main()
