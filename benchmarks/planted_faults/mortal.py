"""The same faults in a MORTAL actor and its rollout worker, by each way of syncing weights."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from mortal_steps.compute.roles import sampler_settings
from mortal_steps.errors import MortalError
from mortal_steps.rollout.worker import RolloutWorker
from mortal_steps.store import shared_memory
from mortal_steps.types import WeightsRef
from tests.support.policy.rollouts import make_config
from tests.support.policy.runs import MadeRun, make_run
from tests.support.rollout.planted import Delivery, nearly, read, with_tensor

TENSORS = {False: "model.layers.1.mlp.down_proj.weight"}
TENSORS[True] = f"base_model.model.{TENSORS[False].removesuffix('weight')}lora_B.weight"


def sync(
    model: str, folder: Path, *, lora: bool, fault: str, method: str, learning_rate: float
) -> Mapping[str, Any]:
    """Sync to v0 and v1, and to v2 with the fault: whether it is refused, what was said, and what
    the probe alone tells, in nats."""
    training = {"use_lora": True, "lora": {"r": 4, "publish": "adapter"}} if lora else {}
    config = make_config(rollout={"weight_sync": method}, learning_rate=learning_rate, **training)
    run = make_run(folder, config, model, num_steps=4)
    try:
        with _synced_to_v1(run, config, model) as (worker, delivery, versions):
            said = _strike(worker, delivery, versions, run.store.root, TENSORS[lora], fault)
            off_by = _off_by(worker, _folder(worker, versions[2]))
    finally:
        shared_memory.remove_folder(run.store.root)
    return {"refused": bool(said), "said": said, "off_by": off_by}


@contextmanager
def _synced_to_v1(
    run: MadeRun, config: Any, model: str
) -> Iterator[tuple[RolloutWorker, Delivery, list[WeightsRef]]]:
    actor = run.actor()
    versions = [*actor.prepare(step=0).weights]
    worker = RolloutWorker(run_dir=str(run.store.root), **sampler_settings(config, model))
    worker.start()
    delivery = Delivery(worker._engine)
    worker.sync_weights(weights=versions[0])
    for step in (0, 1):
        (result,) = run.train(actor, [step])
        assert result.weights is not None
        versions.append(result.weights)
        if step == 0:
            worker.sync_weights(weights=versions[1])
    yield worker, delivery, versions


def _folder(worker: RolloutWorker, version: WeightsRef) -> Path:
    return worker._store.holding(version.path).path(version.path)


def _off_by(worker: RolloutWorker, folder: Path) -> float:
    """What the probe tells of the version that was refused, in nats."""
    assert worker._engine is not None
    probe = json.loads((folder / "probe.json").read_bytes())
    found = worker._engine.score(probe["token_ids"])
    return max(abs(a - b) for a, b in zip(found, probe["logprobs"], strict=True))


def _strike(
    worker: RolloutWorker,
    delivery: Delivery,
    versions: list[WeightsRef],
    root: Path,
    tensor: str,
    fault: str,
) -> str:
    folders = [_folder(worker, version) for version in versions]
    held, wanted = (read(folder, tensor) for folder in folders[1:])
    copy = root / "altered"
    copy.mkdir()

    def altered(given: Path) -> Path | None:
        if fault == "nothing delivered":
            return None
        if fault == "one tensor not delivered":
            return with_tensor(given, tensor, held, copy)
        return with_tensor(given, tensor, nearly(wanted), copy)

    with delivery.altered(altered):
        try:
            worker.sync_weights(weights=versions[2])
        except MortalError as error:
            return f"{type(error).__name__}: {error}"
    return ""
