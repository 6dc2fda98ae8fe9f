"""A run that learns from rows on Modal: what TRL prepared here is where the actor is."""

import asyncio

import pytest

from mortal_steps.orchestration import driver
from mortal_steps.orchestration.open_run import open_run
from mortal_steps.plan.loader import load_config
from mortal_steps.report.recorder import Recorder
from mortal_steps.runs.run import find_run
from tests.support import bare, bare_flow
from tests.support.chaos.comparison import digests
from tests.support.chaos.rows import write_rows
from tests.support.modal.bare_run import drive
from tests.support.modal.fire import ACTOR
from tests.support.modal.project import MORTAL, ON_MODAL, at

STEPS = 9
"""An epoch has seven."""


def config_of(folder, run_id, *overrides):
    # Nothing is sampled, but this is part of the run's identity, with other defaults there.
    sampling = ("rollout.engine=transformers", "rollout.dtype=float32")
    settings = (f"training.max_steps={STEPS}", *sampling, *overrides)
    config = load_config(folder / "chaos.toml", settings)
    return config.model_copy(update={"run_id": run_id, "runs_dir": str(folder / "runs")})


async def drive_until_killed(run, step):
    """Drive the run, and stop as a kill would once that step is taken but not yet noted."""

    class DyingRecorder(Recorder):
        def step(self, problems, batch, result):
            if result.step == step:
                raise bare_flow.Killed
            return super().step(problems, batch, result)

    async with driver.open_session(run) as session:
        await bare.train(session, DyingRecorder(run))


def test_the_bits_of_a_run_here_and_after_the_flow_is_gone(plane, tmp_path):
    write_rows(tmp_path, "sft")
    with bare_flow.bare_in(tmp_path):
        here = bare_flow.go_on(config_of(tmp_path, "here"))
        there = open_run(config_of(tmp_path, "there", *ON_MODAL))
        with pytest.raises(bare_flow.Killed):
            asyncio.run(drive_until_killed(there, 4))
        asyncio.run(drive(open_run(there.config)))
    assert plane.events("container_started", function=ACTOR)
    plane.run(*MORTAL, "fetch", "there", "--runs-dir=fetched", "--all", **at(tmp_path))
    fetched = find_run(tmp_path / "fetched", "there")
    assert digests(fetched.store.root, STEPS) == digests(here.store.root, STEPS)
    prepared = "data/prepared/eval.arrow"
    assert fetched.store.path(prepared).read_bytes() == here.store.path(prepared).read_bytes()
