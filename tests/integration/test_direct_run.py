"""A whole run with `direct`, in real processes: the actor is killed while its weights travel, and
while it saves its state beside the sampling of the next step."""

import asyncio
import contextlib
import os
import re
import signal

from mortal_flows.stop import Stop
from mortal_flows.training import Training
from mortal_steps.errors import WorkerLostError
from mortal_steps.orchestration import driver
from mortal_steps.orchestration.batch_source import batch_source
from mortal_steps.orchestration.opening import open_run
from mortal_steps.orchestration.reporter import LogReporter
from mortal_steps.orchestration.stages import PlainStages
from mortal_steps.policy import journal
from mortal_steps.report.recorder import Recorder
from mortal_steps.store.segments import SHARED_MEMORY, prefix_of
from tests.support.bare_flow import bare_in, go_on, project_config

KILLED_AT = 2
"""The version whose announcement the actor does not survive."""
SAVE_KILLED_AT, NUM_STEPS = 4, 6


class Killing(PlainStages):
    """Ends the actor between its announcement and the workers' copies, and in the middle of a
    checkpoint. No checkpoint begins before the next step is sampled."""

    killed, killed_saving = 0, False

    def __init__(self):
        self.sampled = set()

    async def generate(self, session, batch, shard, weights):
        self.sampled.add(batch.step)
        return await super().generate(session, batch, shard, weights)

    async def checkpoint(self, session, step, best_score):
        async with asyncio.timeout(20):
            while step < NUM_STEPS and step not in self.sampled:
                await asyncio.sleep(0.01)
        if step != SAVE_KILLED_AT:
            return await super().checkpoint(session, step, best_score)
        saving = asyncio.ensure_future(super().checkpoint(session, step, best_score))
        while not any(session.store.path("checkpoints").glob(".*.partial")) and not saving.done():
            await asyncio.sleep(0)
        self.killed_saving = not saving.done()
        printed = session.store.path("logs/actor-0.log").read_text()
        os.kill(int(re.findall(r"process (\d+) is a", printed)[-1]), signal.SIGKILL)
        with contextlib.suppress(WorkerLostError):
            return await saving
        return await super().checkpoint(session, step, best_score)

    async def sync_weights(self, session, weights, worker):
        if weights.version == KILLED_AT and not self.killed:
            self.killed = int(weights.segment.name.split("-")[2])
            os.kill(self.killed, signal.SIGKILL)
        return await super().sync_weights(session, weights, worker)


async def drive(run, stages):
    async with driver.open_session(run) as session:
        source, recorder = batch_source(run.config), Recorder(run)
        await Training(session, stages, source, LogReporter(), Stop(), recorder).run()


def test_an_actor_killed_in_mid_sync_and_in_mid_save_ends_with_the_bits_of_reload(tmp_path):
    stages = Killing()
    with bare_in(tmp_path):
        reload = go_on(project_config(tmp_path))
        config = project_config(tmp_path, **{"rollout.weight_sync": "direct"})
        config = config.model_copy(update={"run_id": "direct"})
        direct = open_run(config)
        asyncio.run(drive(direct, stages))
        assert stages.killed and stages.killed_saving
        assert direct.manifest.final.weights_sha256 == reload.manifest.final.weights_sha256
        logs = [run.metrics() for run in (direct, reload)]
        for row in (*logs[0], *logs[1]):
            del row["state_id"]  # follows from the configuration, too
        assert logs[0] == logs[1]
        published = [
            journal.find_result(run.store, KILLED_AT - 1).weights for run in (direct, reload)
        ]
        assert published[0] == published[1]
        printed = "".join(path.read_text() for path in direct.store.path("logs").glob("rollout*"))
        assert "shared memory" not in printed, "a worker read a folder where there was memory"
        assert list(SHARED_MEMORY.glob(f"{prefix_of(direct.store.root)}*")) == []
