"""Rollout workers that sleep once a step is sampled (`rollout.sleep_while_training`)."""

import asyncio

import pytest

from mortal_steps.errors import WorkerLostError
from mortal_steps.orchestration.batch_sources.base import RolloutWorkers
from mortal_steps.orchestration.session import Session
from mortal_steps.plan.run_config import RunConfig
from mortal_steps.report.recorder import Recorder
from mortal_steps.runs.run import Run
from mortal_steps.store import RunStore
from mortal_steps.types import PolicyVersion, StageTiming, WeightsRef
from tests.support.run_info import run_info

WEIGHTS = WeightsRef(version=PolicyVersion(0), path="weights/v0", sha256="0" * 64)


class TwoWorkers:
    """A compute whose second rollout worker is lost when it is asked to sleep."""

    def __init__(self):
        self.calls = []

    def ready_workers(self, role):
        return [0, 1]

    async def call(self, role, method, *, key, worker, **payload):
        self.calls.append((method, worker))
        if (method, worker) == ("sleep", 1):
            raise WorkerLostError("gone")
        return StageTiming(stage="sync_weights", step=0)


@pytest.mark.parametrize("sleeps", [True, False])
async def test_workers_sleep_after_the_last_shard_and_load_before_the_next(tmp_path, sleeps):
    config = RunConfig(rollout={"sleep_while_training": sleeps})
    compute = TwoWorkers()
    session = Session(Run(RunStore(tmp_path), config, run_info(tmp_path)), compute)
    workers = RolloutWorkers(session, Recorder(session.run))
    synced, slept = [("sync_weights", 0), ("sync_weights", 1)], [("sleep", 0), ("sleep", 1)]
    for _ in range(2):
        async with workers.sampling_with(WEIGHTS):
            await asyncio.sleep(0)
    assert compute.calls == ([*synced, *slept] * 2 if sleeps else synced)
