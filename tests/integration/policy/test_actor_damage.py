"""Damaged records: the actor says from where the run can go on, and it ends with the same bits."""

import logging

import pytest

from mortal_steps.policy import journal
from mortal_steps.policy.on_disk import weights
from tests.support.damage import flip_a_byte
from tests.support.policy.rollouts import make_config
from tests.support.policy.runs import NUM_STEPS, make_run

DAMAGED_STEP = 2


@pytest.fixture
def run(model_path, tmp_path):
    """Four steps taken, a checkpoint after the first."""
    run = make_run(tmp_path / "run", make_config(), model_path)
    actor = run.actor()
    actor.prepare(step=0)
    run.train(actor, [0])
    actor.checkpoint(step=1, best_score=None)
    run.train(actor, [1, 2, 3])
    return run


def damaged(run, name):
    return run.store.path(f"steps/{DAMAGED_STEP:06d}/{name}")


@pytest.mark.parametrize(
    ("name", "how"),
    [
        ("journal.json", "flipped"),
        ("journal.json", "missing"),
        ("generations-0.parquet", "missing"),
        ("rewards-1.parquet", "flipped"),
    ],
)
def test_the_run_goes_back_to_the_step_of_a_lost_record(run, uninterrupted, caplog, name, how):
    flip_a_byte(damaged(run, name)) if how == "flipped" else damaged(run, name).unlink()
    actor = run.actor()
    with caplog.at_level(logging.WARNING):
        ready = actor.prepare(step=4)
    assert (ready.step, [w.version for w in ready.weights]) == (DAMAGED_STEP, [DAMAGED_STEP])
    assert ready.state_id == journal.find_result(run.store, DAMAGED_STEP - 1).state_id
    assert name in caplog.text
    # `request` commits the shards again, as the workers do; every version answered must be there.
    for step in range(DAMAGED_STEP, NUM_STEPS):
        (result,) = run.train(actor, [step])
        assert weights.find(run.store, result.weights.version) == result.weights
    assert len(weights.published_versions(run.store)) == 2
    journal.check_entry(run.store, DAMAGED_STEP)
    assert run.state_digests(actor, NUM_STEPS) == uninterrupted("full")
    assert run.actor().prepare(step=5).step == 5


def test_a_damaged_result_is_made_again_from_the_journal(run, uninterrupted, caplog):
    path = damaged(run, "result.json")
    whole = path.read_bytes()
    flip_a_byte(path)
    actor = run.actor()
    assert actor.prepare(step=4).step == 4
    assert "result.json is damaged" in caplog.text
    assert path.read_bytes() == whole
    run.train(actor, [4])
    assert run.state_digests(actor, NUM_STEPS) == uninterrupted("full")


def test_a_damaged_result_of_a_step_the_actor_holds_is_made_again(run):
    actor = run.actor()
    actor.prepare(step=4)
    path = damaged(run, "result.json")
    whole = path.read_bytes()
    flip_a_byte(path)
    run.train(actor, [DAMAGED_STEP])
    assert path.read_bytes() == whole


def test_records_before_the_checkpoint_are_not_needed(run):
    flip_a_byte(run.store.path("steps/000000/generations-0.parquet"))
    assert run.actor().prepare(step=4).step == 4


def test_with_staleness_the_run_goes_back_far_enough_to_sample_with_the_older_version(
    model_path, tmp_path
):
    run = make_run(tmp_path, make_config(rollout={"staleness": 2}), model_path)
    actor = run.actor()
    run.train(actor, range(4))
    actor.checkpoint(step=4, best_score=None)
    assert run.actor().prepare(step=4).step == 4
    run.store.remove_folder("weights/v2")  # samples step 4, and is led to by steps 0 and 1
    flip_a_byte(run.store.path("steps/000001/generations-0.parquet"))
    ready = run.actor().prepare(step=4)
    assert (ready.step, [w.version for w in ready.weights]) == (1, [0, 1])


def test_scores_made_again_with_other_side_metrics_are_journaled(run):
    path = damaged(run, "rewards-0.parquet")
    flip_a_byte(path)
    actor = run.actor()
    actor.prepare(step=4)
    request = run.request(DAMAGED_STEP, side_metrics={"seconds": 0.25})
    actor.train_step(request=request)
    journal.check_entry(run.store, DAMAGED_STEP)
    assert run.actor().prepare(step=4).step == 4


def test_checkpoints_of_before_going_back_do_not_push_out_the_new_ones(run):
    actor = run.actor()
    actor.prepare(step=4)
    for step in (3, 4):
        run.actor().checkpoint(step=step, best_score=None)
    actor.prepare(step=1)
    actor.checkpoint(step=1, best_score=None)
    actor.checkpoint(step=2, best_score=None)
    assert {p.name for p in run.store.path("checkpoints").iterdir()} == {
        f"step-{step}" for step in (1, 2, 3, 4)
    }
