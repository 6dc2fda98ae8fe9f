"""How far a run stands while a checkpoint is written beside its train steps."""

import json

import pytest

from mortal_flows.saves import Saves
from mortal_steps.config.checkpoints import CheckpointsConfig
from mortal_steps.errors import DiskError, WorkerLostError
from mortal_steps.orchestration.session import Session
from mortal_steps.plan.run_config import RunConfig
from mortal_steps.report.recorder import Recorder
from mortal_steps.runs.run import Run
from mortal_steps.store import RunStore
from mortal_steps.types import Checkpoint, StageTiming
from tests.support.run_info import run_info


class SlowActor:
    """A compute whose actor writes for as long as it is told to."""

    def __init__(self):
        self.saving, self.why, self.calls, self.error = False, None, [], None

    async def call(self, role, method, *, key, **payload):
        self.calls.append(method)
        if self.error is not None and method != "begin_checkpoint":
            raise self.error
        return getattr(self, method)(**payload)

    def begin_checkpoint(self, step):
        if isinstance(self.why, Exception):
            raise self.why
        return self.why

    def is_saving(self):
        return self.saving

    def checkpoint(self, step, best_score):
        timing = StageTiming(stage="checkpoint", step=step)
        return Checkpoint(step=step, path="", sha256="", state_id="", timing=timing)


@pytest.fixture
def actor():
    return SlowActor()


@pytest.fixture
def run(tmp_path):
    config = RunConfig(checkpoints=CheckpointsConfig(save_steps=3))
    return Run(RunStore(tmp_path), config, run_info(tmp_path))


@pytest.fixture
def saves(run, actor):
    return Saves(Session(run, actor), Recorder(run))


async def end(saves, *steps):
    """Return what was reported when these steps ended."""
    said = []
    for step in steps:
        await saves.end_step(step, said.append)
    return said


def stands(run):
    return run.manifest.step, [saved.step for saved in run.manifest.checkpoints]


async def test_the_run_stands_still_until_the_checkpoint_is_whole(run, saves, actor):
    assert await end(saves, 1, 2) == []
    assert stands(run) == (2, [])
    actor.saving = True
    assert await end(saves, 3, 4) == []
    assert stands(run) == (2, [])
    actor.saving = False
    assert await end(saves, 5) == []
    assert stands(run) == (5, [3])
    actor.saving = True
    await end(saves, 6, 7, 8)
    assert stands(run) == (5, [3])
    assert await end(saves, 9) == []  # the last step has nothing to be written beside
    assert stands(run) == (9, [6, 9])  # nothing was scored, so none is the best
    assert actor.calls.count("begin_checkpoint") == 2


async def test_it_advances_although_each_checkpoint_is_written_until_the_next_is_due(
    run, saves, actor
):
    """The actor deletes older checkpoints, and a run that stood before all of those that are left
    could not go on from any."""
    actor.saving = True
    await end(saves, 1, 2, 3, 4)
    run.append("metrics.jsonl", {"step": 5})
    await end(saves, 5)
    run.append("metrics.jsonl", {"step": 6})
    await end(saves, 6)
    assert stands(run) == (5, [3])
    length = run.manifest.logs["metrics.jsonl"].length
    assert length == len(json.dumps({"step": 5})) + 1, "what step 6 has logged does not count yet"
    await end(saves, 7, 8)
    assert stands(run) == (5, [3])


async def test_a_run_that_was_set_back_is_saved_where_it_stops(run, saves):
    await end(saves, 1, 2, 3, 4, 5, 6)
    run.go_back_to(4)
    assert await saves.save_now(5)
    assert [saved.step for saved in run.manifest.checkpoints] == [3, 5, 6]
    assert not await saves.save_now(6), "a checkpoint has it"
    assert not await saves.save_now(0)


async def test_a_run_that_ends_early_waits_and_keeps_the_lines_of_whole_steps_alone(
    run, saves, actor
):
    actor.saving = True
    await end(saves, 3)
    run.append("metrics.jsonl", {"step": 4})  # of a step that has not ended
    await saves.settle()
    assert stands(run) == (3, [3])
    assert run.manifest.logs["metrics.jsonl"].length == 0
    await saves.settle()  # there is nothing left to wait for
    assert actor.calls == ["begin_checkpoint", "checkpoint"]


async def test_a_train_step_waits_where_the_actor_cannot_write_beside_it(run, saves, actor):
    actor.why = "a copy of the state takes 9.0 GB of memory"
    assert await end(saves, 3, 6) == [f"train steps wait for checkpoints: {actor.why}"]
    assert stands(run) == (6, [3, 6])


async def test_a_lost_actor_is_asked_again(run, saves, actor):
    actor.why = WorkerLostError("gone")
    assert await end(saves, 3) == []
    assert stands(run) == (3, [3])


async def test_a_checkpoint_that_cannot_be_written_does_not_count(run, saves, actor):
    actor.saving = True
    await end(saves, 3)
    actor.error = DiskError("no space left")
    with pytest.raises(DiskError):
        await saves.settle()
    assert stands(run) == (0, [])


async def test_the_configuration_may_let_train_steps_wait(tmp_path, actor):
    config = RunConfig(checkpoints=CheckpointsConfig(save_steps=3, background=False))
    run = Run(RunStore(tmp_path), config, run_info(tmp_path))
    saves = Saves(Session(run, actor), Recorder(run))
    assert await end(saves, 3) == []
    assert actor.calls == ["checkpoint"]
