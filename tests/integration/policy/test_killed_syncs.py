"""An actor that is killed while it publishes a folder, or reads, comes back to the same bits.

With `direct` it is test_direct.py; the worker's side in rollout/test_killed_syncs.py.
"""

from __future__ import annotations

import os
import signal

import pytest

from mortal_steps.policy import journal
from mortal_steps.policy.on_disk import weights
from tests.support.killed import killed_in_a_fork
from tests.support.policy.rollouts import make_config
from tests.support.policy.runs import NUM_STEPS, SETUPS, make_run

KILLED_AT = 2
STAGES = {
    # results that are there, and the folder of the version published after that step
    "when half of the folder is written": (2, False),
    "when the folder is whole": (2, True),
    "after the result": (3, True),
}


def die(*_args, **_kwargs):
    os.kill(os.getpid(), signal.SIGKILL)


def train_until_killed(run, stage):
    """Never returns."""
    actor = run.actor()
    actor.prepare(step=0)
    run.train(actor, range(KILLED_AT))
    stepper, write_result = actor._states.state.stepper, journal.write_result
    if stage == "when half of the folder is written":
        export = stepper.export_weights
        stepper.export_weights = lambda folder: (export(folder), die())
    elif stage == "when the folder is whole":
        journal.write_result = die
    else:
        journal.write_result = lambda *given: (write_result(*given), die())
    run.train(actor, [KILLED_AT])


@pytest.mark.parametrize("stage", STAGES)
@pytest.mark.parametrize("setup", ["full", "cast", "lora-accumulated"])
def test_a_kill_in_mid_sync_changes_no_bit(model_path, tmp_path, uninterrupted, setup, stage):
    expected = uninterrupted(setup)
    run = make_run(tmp_path, make_config(**SETUPS[setup]), model_path)
    killed_in_a_fork(train_until_killed, run, stage)
    done, is_whole = STAGES[stage]
    assert (journal.find_result(run.store, KILLED_AT) is not None) == (done > KILLED_AT)
    assert (weights.find(run.store, KILLED_AT + 1) is not None) == is_whole
    second = run.actor()
    second.prepare(step=done)
    run.train(second, range(done, NUM_STEPS))
    assert run.state_digests(second, NUM_STEPS) == expected
    assert not list(run.store.path("weights").glob(".*.partial"))
