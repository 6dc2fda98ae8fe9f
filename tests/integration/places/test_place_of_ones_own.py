"""The place of docs/extending.md, as a user would name it: workers in networks of their own."""

import asyncio
import os
import signal
import subprocess

from mortal_flows.stop import Stop
from mortal_flows.training import Training
from mortal_steps.orchestration import driver
from mortal_steps.orchestration.batch_sources.base import batch_source
from mortal_steps.orchestration.open_run import open_run
from mortal_steps.orchestration.reporter import Reporter
from mortal_steps.orchestration.session import Session
from mortal_steps.report.recorder import Recorder
from tests.support.bare_flow import bare_in, go_on, project_config
from tests.support.docs_examples import settings, write_modules

PLACE = ("extending.md", "A place")
KILLED_AT = 1
"""The version that the actor does not outlive."""


SHORT = {"training.max_steps": 3, "evaluation.eval_steps": 3}


class Killing(Session):
    killed, networks = 0, frozenset()

    async def sync_weights(self, weights, worker):
        if weights.version == KILLED_AT and not self.killed:
            processes = self.compute.processes()
            self.networks = {_network(pid) for pid in processes.values()}
            self.killed = processes["actor-0"]
            os.kill(self.killed, signal.SIGKILL)
            while self.killed in self.compute.processes().values():  # the next call finds it dead
                await asyncio.sleep(0.01)
        return await super().sync_weights(weights, worker)


def _network(process):
    return os.readlink(f"/proc/{process}/ns/net")


async def _drive(run):
    async with driver.open_session(run, session_type=Killing) as session:
        source, recorder = batch_source(run.config.rollout.source), Recorder(run)
        await Training(session, source, Reporter(), Stop(), recorder).run()
        return session


def test_a_run_at_a_place_of_ones_own_ends_with_the_bits_of_one_here(tmp_path):
    with bare_in(tmp_path) as patch:
        patch.syspath_prepend(tmp_path)
        [module] = write_modules(*PLACE, tmp_path)
        isolates = _may_unshare()
        if not isolates:  # a machine that forbids it still takes the other route
            module.write_text(module.read_text().replace("ROUTE = (", 'ROUTE = ("env",); _ = ('))
        here = go_on(project_config(tmp_path, **SHORT))
        key, _, name = settings(*PLACE).splitlines()[1].partition(" = ")
        config = project_config(tmp_path, **SHORT, **{f"compute.{key}": name})
        elsewhere = open_run(config.model_copy(update={"run_id": "elsewhere"}))
        session = asyncio.run(_drive(elsewhere))
    assert session.killed and len(session.networks) == (3 if isolates else 1)
    assert isolates is (_network("self") not in session.networks)
    assert elsewhere.manifest.final.weights_sha256 == here.manifest.final.weights_sha256
    logs = [run.metrics() for run in (elsewhere, here)]
    for row in (*logs[0], *logs[1]):
        del row["state_id"]  # follows from the configuration, too
    assert logs[0] == logs[1]


def _may_unshare():
    tried = subprocess.run(["unshare", "--map-root-user", "--net", "true"], capture_output=True)
    return tried.returncode == 0
