"""Checkpoints that an actor writes beside its train steps: the same files, and no kill between
snapshot and last byte changes a bit or leaves half a checkpoint that counts."""

from __future__ import annotations

import os
import signal
import threading

import pytest

from mortal_steps.config import CheckpointsConfig
from mortal_steps.errors import DiskError
from mortal_steps.policy.algorithms.stepping import state
from mortal_steps.policy.on_disk import checkpoints
from mortal_steps.store import run_store
from tests.support.killed import killed_in_a_fork
from tests.support.policy.rollouts import make_config
from tests.support.policy.runs import NUM_STEPS, SETUPS, make_run, untimed

SAVED_AT = 2


def die(*_args, **_kwargs):
    os.kill(os.getpid(), signal.SIGKILL)


def saving(config, **settings):
    return config.model_copy(update={"checkpoints": CheckpointsConfig(**settings)})


def begun(run):
    """Return an actor of the run that takes steps, in a fresh process."""
    actor = run.actor()
    actor.prepare(step=0)
    return actor


@pytest.fixture
def slow_write(monkeypatch):
    """Checkpoints are written once this is set."""
    may_write, save = threading.Event(), checkpoints.save

    def waiting(*args, **kwargs):
        assert may_write.wait(60)
        return save(*args, **kwargs)

    monkeypatch.setattr(checkpoints, "save", waiting)
    yield may_write
    may_write.set()


@pytest.mark.parametrize("setup", ["full", "cast", "lora-accumulated", "moving-reference"])
def test_what_is_written_beside_training_is_what_a_waiting_actor_writes(
    model_path, tmp_path, setup, slow_write
):
    config = make_config(**SETUPS[setup])
    run = make_run(tmp_path / "beside", config, model_path)
    actor = begun(run)
    run.train(actor, range(SAVED_AT))
    assert actor.begin_checkpoint(step=SAVED_AT) is None
    results = run.train(actor, [SAVED_AT, SAVED_AT + 1])  # which prune, and change all in memory
    assert actor.is_saving()
    slow_write.set()
    saved = actor.checkpoint(step=SAVED_AT, best_score=None)
    assert not actor.is_saving()
    assert saved.timing.background["write"] > 0
    waiting = make_run(tmp_path / "waiting", config, model_path)
    other = begun(waiting)
    waiting.train(other, range(SAVED_AT))
    assert untimed(other.checkpoint(step=SAVED_AT, best_score=None)) == untimed(saved)
    again = run.actor()
    assert again.prepare(step=SAVED_AT).state_id == saved.state_id
    assert untimed(run.train(again, [SAVED_AT])[0]) == untimed(results[0])


STAGES = {
    # newest whole checkpoint after the kill, steps with a result
    "before a byte is written": (0, 3),
    "when half of it is written": (0, 3),
    "before the folder has its name": (0, 3),
    "when it is whole and nobody knows": (2, 3),
    "while the next step is trained": (0, 2),
}


def train_until_killed(run, stage):
    """Never returns."""
    actor = begun(run)
    run.train(actor, range(SAVED_AT))
    reached, trained = threading.Event(), threading.Event()
    replace_folder = run_store.replace_folder

    def stop_writing(*_args, **_kwargs):
        reached.set()
        trained.wait()
        die()

    def stop_naming(*folders):
        in_writer = threading.current_thread() is not threading.main_thread()
        return stop_writing() if in_writer else replace_folder(*folders)

    def write_half(_taken, folder):
        (folder / "model.safetensors").write_bytes(b"half")
        stop_writing()

    if stage == "before a byte is written":
        checkpoints.save = stop_writing
    elif stage == "when half of it is written":
        state.TrainerState.save_state = write_half
    elif stage == "when it is whole and nobody knows":
        checkpoints._reference = stop_writing
    else:
        run_store.replace_folder = stop_naming
    assert actor.begin_checkpoint(step=SAVED_AT) is None
    reached.wait()
    if stage == "while the next step is trained":
        actor._states.state.stepper.export_weights = die
    run.train(actor, [SAVED_AT])
    trained.set()
    threading.Event().wait(60)


@pytest.mark.parametrize("stage", STAGES)
@pytest.mark.parametrize("setup", ["full", "lora-accumulated"])
def test_a_kill_during_the_write_changes_no_bit(model_path, tmp_path, uninterrupted, setup, stage):
    expected = uninterrupted(setup)
    config = saving(make_config(**SETUPS[setup]), save_steps=SAVED_AT)
    run = make_run(tmp_path, config, model_path)
    killed_in_a_fork(train_until_killed, run, stage)
    whole, done = STAGES[stage]
    newest = checkpoints.newest_whole(run.store)
    assert (newest.step if newest else 0) == whole
    second = run.actor()
    second.prepare(step=done)
    run.train(second, range(done, NUM_STEPS))
    # Asked for again by the flow: what was lost was made up for on the way.
    assert second._saver.is_writing() is False
    assert checkpoints.saved_steps(run.store)[0] == SAVED_AT
    assert second.checkpoint(step=SAVED_AT, best_score=None).step == SAVED_AT
    assert run.state_digests(second, NUM_STEPS) == expected
    assert not list(run.store.path("checkpoints").glob(".*"))


def saved_names(run):
    return sorted(path.name for path in run.store.path("checkpoints").glob("*"))


def test_two_are_never_written_at_once_and_no_more_lie_on_the_disk_than_are_kept(
    model_path, tmp_path, monkeypatch
):
    config = saving(make_config(), save_steps=1, keep_last=1, keep_best=False)
    run = make_run(tmp_path, config, model_path)
    actor, seen, save = begun(run), [], checkpoints.save

    def counted(*args, **kwargs):
        seen.append(saved_names(run))
        return save(*args, **kwargs)

    monkeypatch.setattr(checkpoints, "save", counted)
    for step in range(4):
        run.train(actor, [step])
        if step:
            actor.checkpoint(step=step, best_score=None)
        assert actor.begin_checkpoint(step=step + 1) is None
    actor.checkpoint(step=4, best_score=None)
    assert seen == [[], ["step-1"], ["step-2"], ["step-3"]]
    assert saved_names(run) == ["step-3", "step-4"], "the run does not stand at the newest yet"
    run.train(actor, [4])
    actor._saver.finish()
    assert saved_names(run) == ["step-4"]


def test_a_write_that_fails_is_told_and_may_be_tried_again(run, actor, monkeypatch):
    results = run.train(actor, range(SAVED_AT))

    def full_disk(*_args, **_kwargs):
        raise DiskError("no space left")

    with monkeypatch.context() as patched:
        patched.setattr(checkpoints, "save", full_disk)
        assert actor.begin_checkpoint(step=SAVED_AT) is None
        run.train(actor, [SAVED_AT])
        with pytest.raises(DiskError):
            actor.checkpoint(step=SAVED_AT, best_score=None)
    assert checkpoints.newest_whole(run.store) is None
    saved = actor.checkpoint(step=SAVED_AT, best_score=None)
    assert saved.state_id == results[-1].state_id


def test_where_no_copy_can_be_made_training_waits_and_is_told_why(run, actor, monkeypatch):
    run.train(actor, range(SAVED_AT))
    with monkeypatch.context() as patched:
        patched.setattr(state, "available_bytes", lambda: 1000)
        assert "of memory" in actor.begin_checkpoint(step=SAVED_AT)
    assert not actor.is_saving()
    assert actor.begin_checkpoint(step=SAVED_AT) is None
    assert "3 train steps" in (run.train(actor, [SAVED_AT]) and actor.begin_checkpoint(step=2))
