"""What a reward worker has started ends with it."""

import asyncio
import os
import signal
from pathlib import Path

import pytest

from mortal_steps.compute.base import WorkerSpec
from mortal_steps.compute.local import LocalCompute
from mortal_steps.config import RewardsConfig
from mortal_steps.errors import WorkerLostError
from mortal_steps.plan.parts import Plan
from mortal_steps.plan.run_config import RunConfig
from mortal_steps.types import (
    Problem,
)
from tests.support.rewards import failing
from tests.support.rewards.processes import assert_ends, is_alive


@pytest.fixture(autouse=True)
def working_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize("by", ["close", "kill"])
async def test_what_functions_start_ends_with_the_worker(tmp_path: Path, by: str) -> None:
    rewards = RewardsConfig(functions=(f"{failing.__file__}:leaves_a_daemon",))
    kwargs = {"run_dir": "run", "plan": Plan(RunConfig(rewards=rewards)).scoring, "num_steps": 1}
    spec = WorkerSpec(factory="mortal_steps.rewards.worker:RewardWorker", kwargs=kwargs)
    compute = LocalCompute({"reward": spec}, working_dir=tmp_path, log_dir=tmp_path)
    key = "reward/0/0"
    await compute.call("reward", "dry_run", key=key, problems=[Problem(id="train-0", prompt="ab=")])
    daemon = int(Path("daemon").read_text())
    assert is_alive(daemon)
    if by == "kill":
        os.kill(compute.processes()["reward-0"], signal.SIGKILL)
    await compute.close()
    assert_ends(daemon)


def children(pid: int) -> list[int]:
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


async def test_a_killed_worker_leaves_no_host_behind(tmp_path: Path) -> None:
    """Not even one whose interpreter is held by a regular expression."""
    rewards = RewardsConfig(functions=(f"{failing.__file__}:backtracks",))
    kwargs = {"run_dir": "run", "plan": Plan(RunConfig(rewards=rewards)).scoring, "num_steps": 1}
    spec = WorkerSpec(factory="mortal_steps.rewards.worker:RewardWorker", kwargs=kwargs)
    compute = LocalCompute({"reward": spec}, working_dir=tmp_path, log_dir=tmp_path)
    key = "reward/0/0"
    regex = [Problem(id="train-0", prompt="ab=", columns={"regex": True})]
    await compute.call("reward", "start", key=key)
    worker = compute.processes()["reward-0"]
    (supervisor,) = children(worker)
    (host,) = children(supervisor)
    hanging = asyncio.create_task(compute.call("reward", "dry_run", key=key, problems=regex))
    await asyncio.sleep(0.3)  # into the regular expression
    assert is_alive(host)
    try:
        os.kill(worker, signal.SIGKILL)
        with pytest.raises(WorkerLostError, match="SIGKILL"):
            await hanging
        assert_ends(host)
    finally:
        await compute.close()
        if is_alive(host):
            os.kill(host, signal.SIGKILL)
