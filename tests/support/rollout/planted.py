"""Lets a rollout worker take versions by each way of syncing, and plants faults on the way.

    python -m tests.support.rollout.planted '{"engine": "vllm", "model": {...}, "adapter": {...}}'

Whatever the way, weights reach an engine by `load` or `restart`: `Delivery` stands there and alters
what is delivered. One engine for whole models and one for adapters serve all ways.
`test_planted_faults.py` judges the JSON in the last line of the output.
"""

from __future__ import annotations

import gc
import itertools
import json
import multiprocessing
import sys
import tempfile
from collections.abc import Callable, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter

from mortal_steps.errors import MortalError
from mortal_steps.plan.parts import Plan
from mortal_steps.plan.run_config import RunConfig
from mortal_steps.rollout.engines.vllm.library import import_vllm
from mortal_steps.rollout.weight_sync.table import DIRECT, WEIGHT_SYNC
from mortal_steps.rollout.worker import RolloutWorker
from mortal_steps.types import SamplingParams, WeightsRef
from tests.support.rollout.cases import PROBE_IDS, PROMPTS_IDS, RANK, seeds

METHODS = tuple(name for name in WEIGHT_SYNC if name != DIRECT)
"""`direct` loads as `volume` does."""
KINDS = ("model", "adapter")
SYNCED = (0, 1, 0, 1)
"""Versions taken one after the other, the last of which is held when a fault is planted."""
SUBTLE = 2
"""A version that differs from the one before it by less than the canary tells."""
TENSOR = {
    "model": "model.layers.1.mlp.down_proj.weight",
    "adapter": "base_model.model.model.layers.1.mlp.down_proj.lora_B.weight",
}
"""The one that is not delivered."""
PROMPTS = PROMPTS_IDS[3:5]
"""A short one, and one that vLLM's prefix cache has room for."""
GREEDY = SamplingParams(max_tokens=6, temperature=0.0)


class Delivery:
    """Stands between a way of syncing and its engine, and counts what is delivered by what."""

    NAMES = ("load", "restart")

    def __init__(self, engine: Any) -> None:
        self.alter: Callable[[Path], Path | None] = lambda given: given
        self.calls: list[str] = []
        for name in self.NAMES:
            setattr(engine, name, self._standing_before(name, getattr(engine, name)))

    def _standing_before(self, name: str, deliver: Callable[[Path], None]) -> Any:
        def altered(given: Path) -> None:
            self.calls.append(name)
            found = self.alter(given)
            if found is not None:
                deliver(found)

        return altered

    @contextmanager
    def altered(self, alter: Callable[[Path], Path | None]) -> Any:
        self.alter = alter
        try:
            yield
        finally:
            self.alter = lambda given: given


def with_tensor(given: Path, name: str, tensor: Any, folder: Path) -> Path:
    """Return a copy of the folder with another tensor."""
    from safetensors.torch import load_file, save_file

    for path in given.iterdir():
        if path.suffix == ".safetensors":
            save_file({**load_file(path), name: tensor}, folder / path.name)
        else:
            (folder / path.name).write_bytes(path.read_bytes())
    return folder


def read(folder: Path, name: str) -> Any:
    from safetensors.torch import load_file

    path = next(iter(folder.glob("*.safetensors")))
    return load_file(path)[name]


def nearly(tensor: Any) -> Any:
    """Return the same but for the last bit of one value."""
    import torch

    other = tensor.clone()
    other[0, 0] = torch.nextafter(other[0, 0], torch.tensor(torch.inf, dtype=other.dtype))
    return other


class Check:
    """One worker, one way of syncing."""

    def __init__(
        self, worker: RolloutWorker, kind: str, versions: list[WeightsRef], delivery: Delivery
    ) -> None:
        self.worker, self.kind, self.versions, self.delivery = worker, kind, versions, delivery
        assert worker._engine is not None
        self.engine: Any = worker._engine
        self.root = worker._store.root

    def all(self, method: str) -> dict[str, Any]:
        self.delivery.calls.clear()
        # Every version is a new engine here: each once will do.
        syncs = SYNCED[-2:] if method == "checkpoint" else SYNCED
        synced = [self.after(self.versions[version]) for version in syncs]
        calls = sorted({*self.delivery.calls})
        faults = {name: self.refusal(*fault) for name, fault in self.faults().items()}
        recovered = self.after(self.versions[SUBTLE])
        return {"synced": synced, "calls": calls, "faults": faults, "recovered": recovered}

    def after(self, weights: WeightsRef) -> dict[str, Any]:
        """Greedy completions and the probe's log-probabilities, once `weights` are held."""
        self.worker.sync_weights(weights=weights)
        sampled = self.engine.sample(PROMPTS, seeds(len(PROMPTS)), GREEDY)
        plain = [[list(one.token_ids), list(one.logprobs)] for one in sampled]
        return {"score": self.engine.score(PROBE_IDS), "sampled": plain}

    def faults(self) -> dict[str, tuple[WeightsRef, Callable[[Path], Path | None]]]:
        held, wanted = self.versions[SUBTLE - 1], self.versions[SUBTLE]
        name = TENSOR[self.kind]
        old = read(self.root / held.path, name)
        almost = nearly(read(self.root / wanted.path, name))
        # The name of the version leads to what it led to before.
        reused = replace(wanted, path=held.path)
        return {
            "nothing delivered": (wanted, lambda given: None),
            "one tensor not delivered": (wanted, lambda given: self.changed(given, old)),
            "one value off by its last bit": (wanted, lambda given: self.changed(given, almost)),
            "reused name": (reused, lambda given: given),
        }

    def changed(self, given: Path, tensor: Any) -> Path:
        return with_tensor(given, TENSOR[self.kind], tensor, Path(tempfile.mkdtemp(dir=self.root)))

    def refusal(self, weights: WeightsRef, alter: Callable[[Path], Path | None]) -> str:
        with self.delivery.altered(alter):
            try:
                self.worker.sync_weights(weights=weights)
            except MortalError as error:
                return f"{type(error).__name__}: {error}; holds {self.worker._loaded}"
        return "none"


def check_vllm(check: Check) -> dict[str, Any]:
    """Faults of what vLLM keeps beside the weights."""
    engine, versions = check.engine, check.versions
    found: dict[str, Any] = {"v0": check.after(versions[0])}
    reset = engine._llm.reset_prefix_cache
    engine._llm.reset_prefix_cache = lambda: True
    check.after(versions[1])  # its prefixes stay in the cache
    found["stale prefixes"] = check.after(versions[0])
    engine._llm.reset_prefix_cache = lambda: False
    found["prefixes not forgotten"] = check.refusal(versions[1], lambda given: given)
    engine._llm.reset_prefix_cache = reset
    if check.kind == "adapter":
        check.after(versions[1])
        number = engine._adapters.request.lora_int_id
        engine._adapters._numbers, numbers = itertools.repeat(number), engine._adapters._numbers
        engine._llm.llm_engine.remove_lora = lambda number: None
        found["reused number"] = check.refusal(versions[2], lambda given: given)
        engine._adapters._numbers = numbers
        del engine._llm.llm_engine.remove_lora
    return found


def config_of(
    engine: str,
    kind: str,
    method: str,
    dtype: str | None = None,
    options: Mapping[str, Any] | None = None,
) -> RunConfig:
    training = {"use_lora": kind == "adapter", "lora": {"r": RANK, "publish": "adapter"}}
    rollout = {"engine": engine, "weight_sync": method, "dtype": dtype}
    rollout["engine_options"] = dict(options or {})
    return RunConfig.model_validate({"rollout": rollout, "training": training})


def fork_processes_of_vllm() -> None:
    """Let the processes that hold parts of a model be forked from this one, which saves each ten
    seconds of imports, and sleep between two calls, where vLLM has them spin for a second."""
    import_vllm()
    from vllm.distributed.device_communicators import shm_broadcast
    from vllm.v1.executor import multiproc_executor

    multiproc_executor.get_mp_context = lambda: multiprocessing.get_context("fork")
    shm_broadcast.SpinCondition.__init__.__defaults__ = (0.0,)
    shm_broadcast.SHM_READER_RECHECK_INTERVAL_MS = 20  # they miss some calls to wake up


def main(job: dict[str, Any]) -> dict[str, Any]:
    """`job` names the engine and, for each kind, a run, its base and its versions."""
    found: dict[str, Any] = {}
    if job.get("options"):
        fork_processes_of_vllm()
    for kind in KINDS:
        given, engine, delivery = job[kind], None, None
        versions = TypeAdapter(list[WeightsRef]).validate_python(given["versions"])
        found[kind] = {}
        for method in job.get("methods", METHODS):
            config = config_of(job["engine"], kind, method, job.get("dtype"), job.get("options"))
            worker = RolloutWorker(
                run_dir=given["run_dir"], model_path=given["base"], plan=Plan(config).sampler
            )
            worker._engine = engine
            worker.start()
            engine = worker._engine
            delivery = delivery or Delivery(engine)
            check = Check(worker, kind, versions, delivery)
            found[kind][method] = check.all(method)
            found[kind][method]["dtype"] = engine.dtype
            plain = not {"dtype", "options"} & {*job}
            if method == "volume" and job["engine"] == "vllm" and plain:
                found[kind]["vllm"] = check_vllm(check)
        assert engine is not None
        engine.close()
    return found


if __name__ == "__main__":
    # vLLM collects garbage four times as it starts and ends, each half a second of CPU time.
    gc.collect = lambda generation=2: 0  # type: ignore[assignment]
    answer = main(json.loads(sys.argv[1]))
    sys.stdout.write("\n" + json.dumps(answer) + "\n")
