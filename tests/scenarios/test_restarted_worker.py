"""A vLLM worker that has lost one of its processes, or is killed, is lost; another one samples the
same bits."""

from __future__ import annotations

import asyncio
import os
import signal
from dataclasses import replace
from pathlib import Path

import pytest

from mortal_steps.compute.base import WorkerSpec
from mortal_steps.compute.local import LocalCompute
from mortal_steps.config import RolloutConfig
from mortal_steps.errors import WorkerLostError
from mortal_steps.plan.parts import Plan
from mortal_steps.plan.run_config import RunConfig
from tests.support.rewards.processes import is_alive
from tests.support.rollout.cases import SPREAD_ENV
from tests.support.rollout.fixtures import folders, model_b, other_shape, run, vllm_python

__all__ = ["folders", "model_b", "other_shape", "run", "vllm_python"]

pytestmark = pytest.mark.vllm

APART = {"distributed_executor_backend": "mp"}
"""Options of a vLLM whose model is in a process of its own."""


def status(pid: int) -> dict[str, str]:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return dict(line.split(":\t", 1) for line in lines)


async def test_a_worker_that_loses_a_process_of_vllm_is_replaced_as_one_that_is_killed(
    vllm_python, folders, run, tmp_path
):
    store, (request, *_), _ = run
    rollout = RolloutConfig(engine="vllm", engine_options=APART)
    spec = WorkerSpec(
        factory="mortal_steps.rollout.worker:RolloutWorker",
        kwargs={
            "run_dir": str(store.root),
            "model_path": str(folders["model_a"]),
            "plan": Plan(RunConfig(rollout=rollout)).sampler,
        },
        prepare="start",
        python=vllm_python,
        env={"HF_HUB_OFFLINE": "1", **SPREAD_ENV},
    )
    compute = LocalCompute({"rollout": spec}, working_dir=tmp_path, log_dir=tmp_path)

    async def sampled(output: str) -> str:
        key = "generate/0/0"
        asked = replace(request, output=output)
        reference = await compute.call("rollout", "generate", key=key, worker=0, request=asked)
        return reference.file.sha256

    def processes() -> tuple[int, int]:
        """The worker, and the process that holds the model for its vLLM."""
        worker = compute.processes()["rollout-0"]
        children = Path(f"/proc/{worker}/task/{worker}/children").read_text().split()
        (model,) = [int(pid) for pid in children if "Worker" in status(int(pid))["Name"]]
        return worker, model

    try:
        await compute.start("rollout")
        before = await sampled("before.json")
        first, model = processes()
        os.kill(model, signal.SIGKILL)
        with pytest.raises(WorkerLostError):
            await sampled("lost-a-process.json")
        await compute.start("rollout")
        assert await sampled("again.json") == before
        worker, model = processes()
        assert worker != first
        os.kill(worker, signal.SIGKILL)
        with pytest.raises(WorkerLostError):
            await sampled("killed.json")
        async with asyncio.timeout(60):
            while is_alive(model):  # nobody is left to ask it
                await asyncio.sleep(0.1)
    finally:
        await compute.close()
