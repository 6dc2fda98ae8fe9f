"""Both sides of a version on its way: a model that is published, and a worker that loads it."""

import json
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.jobs import ROOT
from mortal_steps.plan.run_config import RunConfig


def timed(action: Callable[[], Any]) -> tuple[float, float, Any]:
    """Return the seconds, the CPU seconds of this process, and what the action returns."""
    began, began_cpu = time.perf_counter(), time.process_time()
    value = action()
    return time.perf_counter() - began, time.process_time() - began_cpu, value


class Policy:
    """A model, or its LoRA adapter, as a `Publisher` takes it. It notes how long its own part of
    the canary took."""

    def __init__(self, model: Any, tokenizer: Any) -> None:
        self.model, self.tokenizer = model, tokenizer
        self.score_s = self.score_cpu_s = 0.0

    @property
    def trained(self) -> list[Any]:
        """The tensors that training changes."""
        return [each.detach() for each in self.model.parameters() if each.requires_grad]

    def export_weights(self, folder: Path) -> Any:
        """See `Stepper`."""
        from mortal_steps.policy.algorithms.base import AdapterBase
        from mortal_steps.policy.model_files.writing import save_adapter, save_model

        if hasattr(self.model, "peft_config"):
            return save_adapter(self.model, folder, AdapterBase(name="base"))
        return save_model(self.model, folder)

    def published_digests(self) -> dict[str, str]:
        """See `Stepper`."""
        from mortal_steps.policy.model_files.writing import adapter_tensors, published_tensors
        from mortal_steps.rollout.weight_sync.tensor_digests import tensor_digests

        tensors_of = adapter_tensors if hasattr(self.model, "peft_config") else published_tensors
        return tensor_digests(tensors_of(self.model).items())

    def score(self, token_ids: Sequence[int]) -> list[float]:
        """See `Stepper`."""
        self.score_s, self.score_cpu_s, found = timed(lambda: self._logprobs(token_ids))
        return found

    def _logprobs(self, token_ids: Sequence[int]) -> list[float]:
        import torch

        ids = torch.tensor([list(token_ids)], device=self.model.device)
        with torch.no_grad():
            logits = self.model(input_ids=ids, use_cache=False).logits[0, :-1].float()
        found: list[float] = logits.log_softmax(-1).gather(1, ids[0, 1:, None]).squeeze(1).tolist()
        return found


class Worker:
    """A rollout worker in a process of its own (worker.py)."""

    def __init__(self, python: str, run_dir: Path, config: RunConfig, model_path: Path) -> None:
        command, pipe = [python, "-m", "benchmarks.weights.worker"], subprocess.PIPE
        self._process = subprocess.Popen(command, cwd=ROOT, stdin=pipe, stdout=pipe, text=True)
        job = {"run_dir": str(run_dir), "config": config.model_dump(mode="json")}
        self.ask({**job, "model_path": str(model_path)})

    def ask(self, request: Mapping[str, Any]) -> dict[str, Any]:
        """Return its answer to a request in JSON; raises `RuntimeError` if it ended."""
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
