"""A whole run with `direct`, in real processes: the actor is killed while its weights travel, and
while it saves its state beside the steps that follow."""

import asyncio
import os
import re
import signal

from mortal_flows.stop import Stop
from mortal_flows.training import Training
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
SAVE_KILLED_AT = 4


class Killing(PlainStages):
    """Ends the actor between its announcement and the workers' copies, and in the middle of a
    checkpoint that it writes beside its train steps."""

    killed = 0
    saving = None

    async def generate(self, session, batch, shard, weights):
        if batch.step == SAVE_KILLED_AT and self.saving is None:
            self.saving = asyncio.create_task(self._kill_in_mid_save(session.store))
        return await super().generate(session, batch, shard, weights)

    async def _kill_in_mid_save(self, store):
        """Whether it hit what it was aimed at."""
        folder, printed = store.path("checkpoints"), store.path("logs/actor-0.log").read_text()
        actor = int(re.findall(r"process (\d+) is a", printed)[-1])
        whole = folder / f"step-{SAVE_KILLED_AT}"
        while not any(folder.glob(f".step-{SAVE_KILLED_AT}.*.partial")) and not whole.exists():
            await asyncio.sleep(0)
        os.kill(actor, signal.SIGKILL)
        return not whole.exists()

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
        assert stages.killed and stages.saving.result()
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
        printed = "".join(path.read_text() for path in direct.store.path("logs").glob("rollout*"))
        assert "shared memory" not in printed, "a worker read a folder where there was memory"
        assert list(SHARED_MEMORY.glob(f"{prefix_of(direct.store.root)}*")) == []
