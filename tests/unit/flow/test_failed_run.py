"""A run that another worker than the actor ends: what was trained until then is saved first."""

import pytest

from mortal_flows.stop import Stop
from mortal_flows.training import Training
from mortal_steps.errors import ActorStateError, DataError, LeaseLostError
from mortal_steps.orchestration.batch_sources.rollouts import Rollouts
from mortal_steps.orchestration.reporter import Reporter
from mortal_steps.orchestration.session import Session
from mortal_steps.plan.run_config import RunConfig
from mortal_steps.report.progress import ProgressLine
from mortal_steps.report.recorder import Recorder
from mortal_steps.runs.run import Run
from mortal_steps.store import RunStore
from mortal_steps.types import Checkpoint, StageTiming
from tests.support.run_info import run_info


class OnlyAnActor:
    """A compute whose actor saves what it is asked to save, or fails."""

    def __init__(self):
        self.saved, self.error = [], None

    async def call(self, role, method, *, key, step, best_score):
        assert (role, method, best_score) == ("actor", "checkpoint", None)
        if self.error:
            raise self.error
        self.saved.append(step)
        timing = StageTiming(stage="checkpoint", step=step)
        return Checkpoint(step=step, path="", sha256="", state_id="", timing=timing)


@pytest.fixture
def compute():
    return OnlyAnActor()


@pytest.fixture
def training(tmp_path, compute):
    run = Run(RunStore(tmp_path), RunConfig(), run_info(tmp_path))
    session, recorder = Session(run, compute), Recorder(run)
    training = Training(session, Rollouts, Reporter(), Stop(), recorder)
    training._trained = 3
    return training


async def end(training, error):
    """What the run's log says of a stage that raises `error`."""

    async def stage():
        raise error

    said = []
    progress = ProgressLine(start=0, num_steps=9, log=said.append)
    with pytest.raises(type(error)) as raised:
        await training._or_save(stage(), progress)
    assert raised.value is error
    return said


async def test_what_is_trained_is_saved_once(training, compute):
    assert await end(training, DataError("bad row")) == [
        "step 3 is saved; what ends the run: bad row"
    ]
    assert [saved.step for saved in training._run.manifest.checkpoints] == [3]
    assert await end(training, DataError("bad row")) == []
    assert compute.saved == [3]


async def test_a_state_that_cannot_be_saved_hides_no_error(training, compute):
    compute.error = ActorStateError("no such state")
    assert await end(training, DataError("bad row")) == ["step 3 cannot be saved: no such state"]


async def test_a_run_that_another_process_has_taken_is_left_alone(training, compute):
    assert await end(training, LeaseLostError("gone")) == []
    assert compute.saved == []
