"""On a GPU that is shared, one engine starts at a time and nobody else works meanwhile."""

import asyncio
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from mortal_steps.compute import devices
from mortal_steps.compute.local_container import worker_environment
from mortal_steps.compute.pool import GpuLock, Pool
from mortal_steps.compute.roles import worker_specs
from mortal_steps.plan.parts import Plan
from mortal_steps.plan.run_config import RunConfig
from mortal_steps.system import gpus
from tests.support.made_up_gpus import several

PATIENCE_S = 60.0

ALLOCATED = "PYTORCH_ALLOC_CONF"


class Gpu:
    """Notes which calls were under way at the same time."""

    def __init__(self) -> None:
        self.under_way: list[str] = []
        self.together: set[frozenset[str]] = set()
        self.starts = 0


class Container:
    def __init__(self, gpu: Gpu) -> None:
        self.on_lost: Callable[[], None] | None = None
        self.gpu = gpu

    async def call(self, method: str, payload: Mapping[str, Any], label: str) -> Any:
        self.gpu.under_way.append(method)
        self.gpu.starts += method == "start"
        for _ in range(20):
            self.gpu.together.add(frozenset(self.gpu.under_way))
            if method == "start":
                assert self.gpu.under_way == ["start"]
            await asyncio.sleep(0)
        self.gpu.under_way.remove(method)
        return method

    async def close(self) -> None:
        pass


def pools(gpu: Gpu) -> tuple[Pool, Pool]:
    """The actor, and two rollout workers that measure."""
    lock = GpuLock()
    actor = Pool([Container(gpu)], None, gpu=lock)
    rollout = Pool([Container(gpu), Container(gpu)], "start", gpu=lock, alone_in=("start",))
    return actor, rollout


async def test_an_engine_starts_alone_and_all_else_goes_on_together() -> None:
    gpu = Gpu()
    actor, rollout = pools(gpu)
    async with asyncio.timeout(PATIENCE_S):
        await asyncio.gather(
            actor.call("prepare", {}, "", None),
            *(rollout.call("generate", {}, "", None) for _ in range(4)),  # before one is ready
            *(actor.call("train_step", {}, "", None) for _ in range(2)),
        )
        rollout.containers[0].on_lost()  # type: ignore[misc]
        await asyncio.gather(
            *(rollout.call("generate", {}, "", None) for _ in range(4)),
            actor.call("train_step", {}, "", None),
        )
    assert gpu.starts == 3
    assert frozenset({"generate", "train_step"}) in gpu.together
    await rollout.close()


async def test_who_gives_up_waiting_holds_nobody_up() -> None:
    lock, held = GpuLock(), asyncio.Event()

    async def take(alone: bool, until: asyncio.Event | None = None) -> None:
        async with lock.take(alone=alone):
            if until is not None:
                await until.wait()

    async with asyncio.timeout(PATIENCE_S):
        working = asyncio.create_task(take(False, held))
        await asyncio.sleep(0)
        starting = asyncio.create_task(take(True))
        behind = asyncio.create_task(take(False))
        await asyncio.sleep(0)
        assert not behind.done(), "granted in order"
        starting.cancel()
        await behind
        last = asyncio.create_task(take(True))
        await asyncio.sleep(0)
        held.set()
        last.cancel()  # as it is granted
        await asyncio.gather(working, last, return_exceptions=True)
        await take(True)


@pytest.mark.parametrize(
    ("rollout", "local", "expected"),
    [
        ({"engine": "vllm"}, {}, (True, True, False)),
        ({"engine": "vllm", "num_rollout_workers": 1}, {}, (True, True, False)),
        (
            {"engine": "vllm", "num_rollout_workers": 1},
            {"actor": {"devices": ["0"]}, "rollout": {"devices": ["1"]}},
            (False, False, False),
        ),
        ({"engine": "transformers"}, {}, (False, False, False)),
    ],
)
def test_those_that_share_a_gpu_lock_it(rollout, local, expected, monkeypatch, tmp_path) -> None:
    config = RunConfig(rollout=rollout, compute={"local": local})

    def shared_gpu() -> tuple[bool, ...]:
        specs = worker_specs(
            Plan(config).workers,
            run_dir=Path("run"),
            fingerprint="",
            model_path="model",
            num_steps=1,
        )
        return tuple(specs[role].shared_gpu for role in ("actor", "rollout", "reward"))

    monkeypatch.setattr(devices, "ask_gpus", lambda *_: tuple(several(2)))
    monkeypatch.setattr(gpus, "GPUS", ())
    assert shared_gpu() == (False, False, False)
    monkeypatch.setattr(gpus, "GPUS", (str(tmp_path),))
    assert shared_gpu() == expected


def test_a_reward_model_of_a_set_locks_the_gpu_that_it_shares(monkeypatch, tmp_path) -> None:
    term = {"type": "model", "model": "./judge", "device": "cuda"}
    sets = {"hard": {"terms": [term]}}
    config = RunConfig(
        data={"source": "x.jsonl", "eval_sets": {"hard": "h.jsonl"}},
        rollout={"engine": "vllm"},
        evaluation={"sets": sets, "decides": "hard"},
    )
    monkeypatch.setattr(gpus, "GPUS", (str(tmp_path),))
    specs = worker_specs(
        Plan(config).workers, run_dir=Path("run"), fingerprint="", model_path="model", num_steps=1
    )
    assert specs["reward"].shared_gpu


@pytest.mark.parametrize(
    ("weight_sync", "expected"),
    [
        ("reload", ("start",)),
        ("checkpoint", ("start", "sync_weights", "generate", "run_harness")),
        ("somebody:s_way", ("start", "sync_weights", "generate", "run_harness")),
    ],
)
def test_an_engine_that_is_started_anew_for_each_version_is_alone_then(
    weight_sync: str, expected: tuple[str, ...], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    config = RunConfig(rollout={"engine": "vllm", "weight_sync": weight_sync})
    monkeypatch.setattr(gpus, "GPUS", (str(tmp_path),))
    specs = worker_specs(
        Plan(config).workers, run_dir=Path("run"), fingerprint="", model_path="model", num_steps=1
    )
    assert specs["rollout"].starts_engine_in == expected
    assert specs["actor"].starts_engine_in == ()


def test_the_actor_of_a_gpu_may_use_memory_again_unless_somebody_chose(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def environment(role: str, **env: str) -> dict[str, str]:
        config = RunConfig(compute={"local": {"actor": {"env": env}}})
        specs = worker_specs(
            Plan(config).workers,
            run_dir=Path("run"),
            fingerprint="",
            model_path="model",
            num_steps=1,
        )
        return worker_environment(specs[role], {})

    for name in (ALLOCATED, "PYTORCH_CUDA_ALLOC_CONF"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(gpus, "GPUS", ())
    assert ALLOCATED not in environment("actor")
    monkeypatch.setattr(gpus, "GPUS", (str(tmp_path),))
    assert environment("actor")[ALLOCATED] == "expandable_segments:True"
    assert ALLOCATED not in environment("rollout"), "vLLM cannot sleep with it"
    assert environment("actor", **{ALLOCATED: "backend:native"})[ALLOCATED] == "backend:native"
    monkeypatch.setenv(ALLOCATED, "max_split_size_mb:64")
    assert environment("actor")[ALLOCATED] == "max_split_size_mb:64"
