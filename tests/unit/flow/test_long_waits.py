"""The report of a run that waits for something is brought up to date once for each wait."""

import asyncio

from mortal_flows import training as loop
from mortal_flows.rollouts import Rollouts
from mortal_flows.stop import Stop
from mortal_flows.training import Training
from mortal_steps.config import RunConfig
from mortal_steps.orchestration.session import Session
from mortal_steps.orchestration.stages import Reporter, Stages
from mortal_steps.report.recorder import Recorder
from mortal_steps.runs.run import Run
from mortal_steps.store import RunStore
from tests.support.run_info import run_info


class CountingRecorder(Recorder):
    reports = 0

    def report(self):
        self.reports += 1
        super().report()


async def test_a_long_wait_is_reported_once(tmp_path, monkeypatch):
    monkeypatch.setattr(loop, "LOOK_EVERY_S", 0.0)
    monkeypatch.setattr("mortal_steps.report.recorder.REPORT_EVERY_S", 0.0)
    run = Run(RunStore(tmp_path), RunConfig(), run_info(tmp_path))
    session, recorder = Session(run, None), CountingRecorder(run)
    training = Training(session, Stages(), Rollouts, Reporter(), Stop(), recorder)
    waits = asyncio.create_task(training._report_long_waits())
    with session.doing.calling("reward", "reward", 0):
        await asyncio.sleep(0.05)
        assert recorder.reports == 0, "it has only just begun"
        monkeypatch.setattr(loop, "LONG_WAIT_S", 0.0)
        session.doing.trained(0, 1000.0)
        await asyncio.sleep(0.05)
        assert recorder.reports == 0, "a step takes longer"
        session.doing.trained(0, None)
        while not run.store.path("report.md").exists():
            await asyncio.sleep(0.01)
        await asyncio.sleep(0.05)
    assert recorder.reports == 1
    with session.doing.calling("reward", "reward", 1):
        while recorder.reports < 2:
            await asyncio.sleep(0.01)
    waits.cancel()
