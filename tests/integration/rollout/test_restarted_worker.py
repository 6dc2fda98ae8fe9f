"""A vLLM worker that was killed, or has lost one of its processes, is replaced."""

from __future__ import annotations

import os
import signal
from dataclasses import replace
from pathlib import Path

import pytest

from mortal_steps.compute.base import WorkerSpec
from mortal_steps.compute.local import LocalCompute
from mortal_steps.compute.roles import sampler_settings
from mortal_steps.config import RolloutConfig, RunConfig
from mortal_steps.errors import WorkerLostError
from tests.support.rollout.cases import SPREAD, SPREAD_ENV

pytestmark = pytest.mark.vllm


def status(pid: int) -> dict[str, str]:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return dict(line.split(":\t", 1) for line in lines)


async def test_a_killed_worker_is_started_anew_and_samples_the_same_bits(
    vllm_python, folders, run, tmp_path
):
    store, (request, *_), _ = run
    spec = WorkerSpec(
        factory="mortal_steps.rollout.worker:RolloutWorker",
        kwargs={
            "run_dir": str(store.root),
            **sampler_settings(
                RunConfig(rollout=RolloutConfig(engine="vllm")), str(folders["model_a"])
            ),
        },
        prepare="start",
        python=vllm_python,
        env={"HF_HUB_OFFLINE": "1"},
    )
    compute = LocalCompute({"rollout": spec}, working_dir=tmp_path, log_dir=tmp_path)

    async def sampled(output: str) -> str:
        key = "generate/0/0"
        asked = replace(request, output=output)
        reference = await compute.call("rollout", "generate", key=key, worker=0, request=asked)
        return reference.file.sha256

    try:
        await compute.start("rollout")
        before = await sampled("before-the-kill.json")
        worker = compute.processes()["rollout-0"]
        os.kill(worker, signal.SIGKILL)
        with pytest.raises(WorkerLostError):
            await sampled("lost.json")
        await compute.start("rollout")
        assert compute.processes()["rollout-0"] != worker
        assert await sampled("after-the-kill.json") == before
    finally:
        await compute.close()


async def test_a_worker_whose_vllm_loses_a_process_is_lost_and_replaced(
    vllm_python, folders, run, tmp_path
):
    store, (request, *_), _ = run
    rollout = RolloutConfig(engine="vllm", engine_options=SPREAD)
    spec = WorkerSpec(
        factory="mortal_steps.rollout.worker:RolloutWorker",
        kwargs={
            "run_dir": str(store.root),
            **sampler_settings(RunConfig(rollout=rollout), str(folders["model_a"])),
        },
        python=vllm_python,
        env={"HF_HUB_OFFLINE": "1", **SPREAD_ENV},
    )
    compute = LocalCompute({"rollout": spec}, working_dir=tmp_path, log_dir=tmp_path)

    async def sampled(output: str) -> str:
        key = "generate/0/0"
        asked = replace(request, output=output)
        reference = await compute.call("rollout", "generate", key=key, request=asked)
        return reference.file.sha256

    try:
        before = await sampled("spread-out.json")
        worker = compute.processes()["rollout-0"]
        children = Path(f"/proc/{worker}/task/{worker}/children").read_text().split()
        named = [int(pid) for pid in children if "Worker" in status(int(pid))["Name"]]
        os.kill(named[-1], signal.SIGKILL)
        with pytest.raises(WorkerLostError):
            await sampled("spread-out-lost.json")
        assert await sampled("spread-out-again.json") == before
    finally:
        await compute.close()
