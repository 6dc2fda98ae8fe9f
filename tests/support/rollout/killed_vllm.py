"""Rollout workers with vLLM that are killed while they take a version, those that follow them, and
those that sleep in between.

    python -m tests.support.rollout.killed_vllm '{"model": {...}, "adapter": {...}}'

Each worker is forked from this process, which has imported vLLM and built no engine.
`test_killed_vllm_syncs.py` judges the JSON in the last line of the output.
"""

from __future__ import annotations

import importlib
import json
import os
import signal
import sys
from collections.abc import Callable
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter

from mortal_steps.plan.parts import Plan
from mortal_steps.rollout.engines.vllm.library import import_vllm
from mortal_steps.rollout.worker import RolloutWorker
from mortal_steps.store import RunStore
from mortal_steps.store.files import digest_file
from mortal_steps.types import FileRef, GenerateRequest, SamplingParams, WeightsRef
from tests.support.rollout.planted import KINDS, METHODS, Delivery, config_of

import_vllm()
for module in (
    "vllm.entrypoints.llm",
    "vllm.v1.engine.llm_engine",
    "vllm.v1.worker.cpu_worker",
    "mortal_steps.rollout.engines.vllm.engine",
):
    importlib.import_module(module)  # no engine is built here: its threads would not be forked
STAGES = ("while it loads", "after it loaded")
COPIES = 5
"""Tensors that the engine has copied of the new version when it is killed while it loads."""


def die(*_args: Any) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def forked(work: Callable[[], None]) -> int:
    """How a process ended that does this work."""
    child = os.fork()
    if not child:
        try:
            work()
            os._exit(0)
        finally:
            os._exit(1)
    return os.waitpid(child, 0)[1]


def killed_after_copies() -> None:
    """Die when torch has copied some more tensors."""
    import torch

    copy, left = torch.Tensor.copy_, [COPIES]

    def counted(tensor: Any, *args: Any, **kwargs: Any) -> Any:
        left[0] -= 1
        return copy(tensor, *args, **kwargs) if left[0] else die()

    torch.Tensor.copy_ = counted  # type: ignore[method-assign]


class Workers:
    """Those of one run."""

    def __init__(self, kind: str, given: dict[str, Any]) -> None:
        self._kind, self._given = kind, given
        self._store = RunStore(Path(given["run_dir"]))
        self._versions = TypeAdapter(list[WeightsRef]).validate_python(given["versions"])
        self._batch = TypeAdapter(FileRef).validate_python(given["batch"])

    def outcome(self, method: str, stage: str) -> list[Any]:
        """How a worker ended that was killed in a stage, what it left, how the next one ended, and
        what that sampled."""
        output = f"{method}-{STAGES.index(stage)}.parquet"
        ended = forked(lambda: self.killed(method, stage, output))
        left = self.digest(output)
        again = forked(lambda: self.whole(method, output))
        return [ended, left, again, self.digest(output)]

    def killed(self, method: str, stage: str, output: str) -> None:
        """Hold the first version, be asked for a shard of the second, and die. Never returns."""
        worker = self._worker(method)
        worker.start()
        delivery = Delivery(worker._engine)
        worker.sync_weights(weights=self._versions[0])
        if stage == STAGES[0]:
            delivery.alter = lambda given: (killed_after_copies(), given)[1]
        else:
            worker._engine.score = die  # type: ignore[union-attr,method-assign,assignment]
        worker.generate(request=self._request(output))

    def slept(self, method: str, output: str) -> None:
        """Sleep between the two versions, and again before the second is asked for once more."""
        worker = self._worker(method)
        worker.start()
        worker.sync_weights(weights=self._versions[0])
        for name in (output, f"again-{output}"):
            worker.sleep()
            worker.generate(request=self._request(name))

    def whole(self, method: str, output: str) -> None:
        self._worker(method).generate(request=self._request(output))

    def digest(self, output: str) -> str | None:
        path = self._store.path(output)
        return digest_file(path) if path.exists() else None

    def _worker(self, method: str) -> RolloutWorker:
        config = config_of("vllm", self._kind, method)
        rollout = config.rollout.model_copy(update={"sleep_while_training": True})
        config = config.model_copy(update={"rollout": rollout})
        folder, base = self._given["run_dir"], self._given["base"]
        return RolloutWorker(run_dir=folder, model_path=base, plan=Plan(config).sampler)

    def _request(self, output: str) -> GenerateRequest:
        return GenerateRequest(
            stage="generate",
            step=1,
            shard=0,
            problems=self._batch,
            start=0,
            stop=2,
            num_generations=2,
            sampling=SamplingParams(max_tokens=6),
            weights=self._versions[1],
            output=output,
        )


def main(job: dict[str, Any]) -> dict[str, Any]:
    """`job` names, for each kind, a run, its base, two versions and a batch."""
    found: dict[str, Any] = {}
    for kind in KINDS:
        workers = Workers(kind, job[kind])
        forked(partial(workers.whole, "reload", "whole.parquet"))
        found[kind] = {"undisturbed": workers.digest("whole.parquet")}
        for method in METHODS:
            output = f"{method}-slept.parquet"
            ended = forked(partial(workers.slept, method, output))
            sampled = workers.digest(output), workers.digest(f"again-{output}")
            found[kind][f"{method} slept"] = [ended, *sampled]
        for method, stage in product(METHODS, STAGES):
            found[kind][f"{method} {stage}"] = workers.outcome(method, stage)
    return found


if __name__ == "__main__":
    answer = main(json.loads(sys.argv[1]))
    sys.stdout.write("\n" + json.dumps(answer) + "\n")
