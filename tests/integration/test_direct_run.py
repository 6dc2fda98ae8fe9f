"""A whole run with `direct`, in real processes: the actor is killed while its weights travel, and
while it saves its state beside the steps that follow."""

import asyncio
import os
import re
import signal

from mortal_flows.stop import Stop
from mortal_flows.training import Training
from mortal_steps.orchestration import driver
from mortal_steps.orchestration.batch_sources.base import batch_source
from mortal_steps.orchestration.open_run import open_run
from mortal_steps.orchestration.reporter import Reporter
from mortal_steps.orchestration.session import Session
from mortal_steps.policy import journal
from mortal_steps.report.recorder import Recorder
from tests.support.bare_flow import bare_in, go_on, project_config

KILLED_AT = 2
"""The version that the actor does not outlive."""
SAVE_KILLED_AT = 4


class Killing(Session):
    """Ends the actor while workers load what it has published, and in the middle of a checkpoint
    that it writes beside its train steps."""

    killed = 0
    saving = None

    async def generate(self, batch, shard, weights):
        if batch.step == SAVE_KILLED_AT and self.saving is None:
            self.saving = asyncio.create_task(self._kill_in_mid_save(self.store))
        if batch.step == SAVE_KILLED_AT:  # its train step finds the actor dead, not dying
            await asyncio.wait([self.saving])
        return await super().generate(batch, shard, weights)

    async def _kill_in_mid_save(self, store):
        """Whether it hit what it was aimed at."""
        folder, actor = store.path("checkpoints"), _actor(store)
        whole = folder / f"step-{SAVE_KILLED_AT}"
        while not any(folder.glob(f".step-{SAVE_KILLED_AT}.*.partial")) and not whole.exists():
            await asyncio.sleep(0.001)  # who sleeps has a core at once, on a busy machine, too
        os.kill(actor, signal.SIGKILL)
        while actor in self.compute.processes().values():  # until its owner has heard of it
            await asyncio.sleep(0.01)
        return not whole.exists()

    async def sync_weights(self, weights, worker):
        store = self.store
        assert store.in_memory.path(weights.path).exists()
        assert not store.path(weights.path).exists()
        if weights.version == KILLED_AT and not self.killed:
            self.killed = _actor(store)
            os.kill(self.killed, signal.SIGKILL)
        return await super().sync_weights(weights, worker)


def _actor(store):
    """The process of the actor that was started last."""
    printed = store.path("logs/actor-0.log").read_text()
    return int(re.findall(r"process (\d+) is a", printed)[-1])


async def drive(run):
    async with driver.open_session(run, session_type=Killing) as session:
        source, recorder = batch_source(run.config.rollout.source), Recorder(run)
        await Training(session, source, Reporter(), Stop(), recorder).run()
        return session


def test_an_actor_killed_in_mid_sync_and_in_mid_save_ends_with_the_bits_of_reload(tmp_path):
    with bare_in(tmp_path):
        reload = go_on(project_config(tmp_path))
        config = project_config(tmp_path, **{"rollout.weight_sync": "direct"})
        config = config.model_copy(update={"run_id": "direct"})
        direct = open_run(config)
        session = asyncio.run(drive(direct))
        assert session.killed and session.saving.result()
        assert [saved.step for saved in direct.manifest.checkpoints] == [
            saved.step for saved in reload.manifest.checkpoints
        ]
        assert direct.manifest.final.weights_sha256 == reload.manifest.final.weights_sha256
        logs = [run.metrics() for run in (direct, reload)]
        for row in (*logs[0], *logs[1]):
            del row["state_id"]  # follows from the configuration, too
        assert logs[0] == logs[1]
        published = [
            journal.find_result(run.store, KILLED_AT - 1).weights for run in (direct, reload)
        ]
        assert published[0] == published[1]
        assert not direct.store.in_memory.root.exists()
