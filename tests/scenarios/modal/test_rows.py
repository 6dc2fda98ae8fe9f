"""Runs that learn from rows or from a teacher on Modal: what TRL prepared here, and the teacher's
folder, are where the actor is."""

import asyncio
import shutil

import pytest

from mortal_steps.orchestration import driver
from mortal_steps.orchestration.open_run import open_run
from mortal_steps.plan.loader import load_config
from mortal_steps.report.recorder import Recorder
from mortal_steps.runs.run import find_run
from tests.support import bare, bare_flow
from tests.support.chaos.comparison import digests
from tests.support.chaos.project import VARIANTS, write_teacher
from tests.support.chaos.rows import write_rows
from tests.support.modal.bare_run import drive
from tests.support.modal.fire import ACTOR, NODE, SINGLE_NODE, Fire
from tests.support.modal.project import MORTAL, ON_MODAL, at, project
from tests.support.modal.project import STEPS as STUDENT_STEPS

STEPS = 9
"""An epoch has seven."""
STUDENT = (*VARIANTS["distillation"], "training.num_iterations=1")
THERE = ("whole", "killed")


def config_of(folder, run_id, *overrides):
    # Nothing is sampled, but this is part of the run's identity, with other defaults there.
    sampling = ("rollout.engine=transformers", "rollout.dtype=float32", "rollout.num_shards=2")
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


@pytest.mark.parametrize(("mode", "container"), [((), ACTOR), ((SINGLE_NODE,), NODE)])
def test_the_bits_of_a_run_here_and_after_the_flow_is_gone(plane, tmp_path, mode, container):
    write_rows(tmp_path, "sft")
    run_id = f"rows-{len(mode)}"
    with bare_flow.bare_in(tmp_path):
        here = bare_flow.go_on(config_of(tmp_path, "here"))
        there = open_run(config_of(tmp_path, run_id, *ON_MODAL, *mode))
        with pytest.raises(bare_flow.Killed):
            asyncio.run(drive_until_killed(there, 4))
        asyncio.run(drive(open_run(there.config)))
    assert plane.events("container_started", function=container)
    fetched = fetch(plane, tmp_path, run_id)
    assert digests(fetched.store.root, STEPS) == digests(here.store.root, STEPS)
    prepared = "data/prepared/eval.arrow"
    assert fetched.store.path(prepared).read_bytes() == here.store.path(prepared).read_bytes()


def test_a_student_has_the_bits_of_one_here_after_its_actor_and_its_flow_were_killed(
    plane, tmp_path
):
    write_teacher(tmp_path / "teacher")
    with bare_flow.bare_in(tmp_path):
        here = bare_flow.go_on(project(tmp_path, "here", *STUDENT))
        there = [open_run(project(tmp_path, name, *ON_MODAL, *STUDENT)) for name in THERE]
        asyncio.run(drive(there[0]))
    shutil.rmtree(tmp_path / "teacher")  # the Volume has it
    fire = Fire(plane, tmp_path, "killed", *STUDENT)
    assert fire.strike(ACTOR, "taking step 2", plane.kill)
    fire.wait_while(ACTOR, "taking step 3")
    fire.kill_flow()
    fire.start()
    fire.finish()
    expected = digests(here.store.root, STUDENT_STEPS)
    for run_id in THERE:
        assert digests(fetch(plane, tmp_path, run_id).store.root, STUDENT_STEPS) == expected


def fetch(plane, folder, run_id):
    plane.run(*MORTAL, "fetch", run_id, "--runs-dir=fetched", "--all", **at(folder))
    return find_run(folder / "fetched", run_id)
