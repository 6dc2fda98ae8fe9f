"""A lost actor comes back to the same bits."""

import dataclasses
import logging
import random
import threading

import numpy
import pytest

from mortal_steps.errors import ActorStateError, StoreError
from mortal_steps.policy import journal
from mortal_steps.policy.on_disk import weights
from mortal_steps.policy.publishing import Publisher
from tests.support.damage import flip_a_byte
from tests.support.policy.rollouts import make_config
from tests.support.policy.runs import NUM_STEPS, SETUPS, make_run, untimed


@pytest.mark.parametrize(
    "setup", ["full", "cast", "lora", "accumulated", "moving-reference", "rloo"]
)
def test_a_fresh_actor_goes_on_from_a_checkpoint_to_the_bit(
    model_path, tmp_path, uninterrupted, setup
):
    run = make_run(tmp_path, make_config(**SETUPS[setup]), model_path)
    first = run.actor()
    first.prepare(step=0)
    run.train(first, range(2))
    first.checkpoint(step=2, best_score=None)
    run.train(first, [2])
    second = run.actor()
    ready = second.prepare(step=3)
    assert (ready.step, [weights.version for weights in ready.weights]) == (3, [3])
    assert ready.state_id == journal.find_result(run.store, 2).state_id
    run.train(second, [3, 4])
    assert run.state_digests(second, NUM_STEPS) == uninterrupted(setup)


@pytest.mark.parametrize("setup", ["lora", "accumulated", "rloo"])
def test_without_a_checkpoint_the_whole_journal_is_replayed(
    model_path, tmp_path, uninterrupted, setup, caplog
):
    run = make_run(tmp_path, make_config(**SETUPS[setup]), model_path)
    run.train(run.actor(), range(4))
    last = run.actor()
    run.train(last, [4])  # nobody called `prepare`: the step itself brings the actor there
    assert run.state_digests(last, NUM_STEPS) == uninterrupted(setup)
    assert "other numbers than recorded" not in caplog.text


def test_random_numbers_drawn_by_other_threads_change_no_bit(run, actor, uninterrupted):
    """Clients in the same process (Modal's, Prefect's) wait for random times before a retry."""
    done = threading.Event()

    def draw():
        while not done.wait(timeout=0.01):
            random.random()
            numpy.random.random()

    thread = threading.Thread(target=draw)
    thread.start()
    try:
        run.train(actor, range(NUM_STEPS))
    finally:
        done.set()
        thread.join()
    assert run.state_digests(actor, NUM_STEPS) == uninterrupted("full")


def test_after_an_error_in_a_step_the_state_is_restored(run, actor, uninterrupted, monkeypatch):
    run.train(actor, range(2))
    with monkeypatch.context() as patch:
        patch.setattr(Publisher, "publish", raise_store_error)
        with pytest.raises(StoreError, match="disk full"):
            run.train(actor, [2])
    run.train(actor, [2, 3, 4])
    assert run.state_digests(actor, NUM_STEPS) == uninterrupted("full")


def test_a_version_published_for_a_step_without_result_is_published_anew(run, actor, uninterrupted):
    run.train(actor, range(3))
    run.store.path("steps/000002/result.json").unlink()
    run.store.remove_folder("weights/v3")
    with run.store.committing_folder("weights/v3") as folder:
        (folder / "model.safetensors").write_bytes(b"other weights")
    second = run.actor()
    run.train(second, [2, 3, 4])
    assert run.state_digests(second, NUM_STEPS) == uninterrupted("full")


def test_a_damaged_checkpoint_is_passed_over(run, actor, uninterrupted, caplog):
    for step in range(4):
        run.train(actor, [step])
        actor.checkpoint(step=step + 1, best_score=None)
    flip_a_byte(run.store.path("checkpoints/step-4/optimizer.pt"))
    second = run.actor()
    with caplog.at_level(logging.WARNING):
        assert second.prepare(step=4).step == 4
    assert "checkpoints/step-4" in caplog.text
    assert "optimizer.pt is damaged" in caplog.text
    run.train(second, [4])
    assert run.state_digests(second, NUM_STEPS) == uninterrupted("full")


def test_an_actor_asked_to_prepare_an_earlier_step_answers_what_is_recorded(run, actor):
    first = run.train(actor, range(3))
    second = run.actor()
    ready = second.prepare(step=1)
    assert (ready.step, ready.state_id, ready.weights) == (
        1,
        first[0].state_id,
        (first[0].weights,),
    )
    assert untimed(second.train_step(request=run.request(1))) == untimed(first[1])
    assert second.train_step(request=run.request(3)).step == 3


def test_a_lost_version_is_published_again_with_the_same_bits(run, actor):
    published = [result.weights for result in run.train(actor, range(3))]
    run.store.remove_folder("weights/v2")
    ready = run.actor().prepare(step=2)
    assert ready.weights == (published[1],)
    assert weights.find(run.store, 3) == published[2]


def test_with_staleness_all_versions_that_sample_next_are_there(model_path, tmp_path):
    config = make_config(rollout={"staleness": 2})
    run = make_run(tmp_path, config, model_path)
    actor = run.actor()
    assert [ready.version for ready in actor.prepare(step=0).weights] == [0]
    run.train(actor, range(4))
    for version in weights.published_versions(run.store):
        run.store.remove_folder(f"weights/v{version}")
    assert [ready.version for ready in run.actor().prepare(step=4).weights] == [2, 3, 4]
    assert weights.published_versions(run.store) == [2, 3, 4]


def test_a_record_of_another_history_is_refused(run, actor):
    run.train(actor, range(2))
    result = journal.find_result(run.store, 0)
    journal.write_result(run.store, dataclasses.replace(result, history_id="0" * 64))
    with pytest.raises(ActorStateError, match="do not belong together"):
        run.actor().train_step(request=run.request(2))


def test_a_replay_with_other_numbers_is_reported(run, actor, caplog):
    run.train(actor, range(2))
    result = journal.find_result(run.store, 0)
    metrics = {**result.metrics, "loss": 1.25}
    journal.write_result(run.store, dataclasses.replace(result, metrics=metrics))
    run.actor().train_step(request=run.request(2))
    assert "replaying step 0 gave other numbers than recorded: {'loss'" in caplog.text


def test_a_replay_that_measures_more_or_less_than_recorded_has_the_same_numbers(run, actor, caplog):
    run.train(actor, range(2))
    result = journal.find_result(run.store, 0)
    metrics = {**result.metrics, "measured_no_more": 1.25}
    del metrics["loss"]
    journal.write_result(run.store, dataclasses.replace(result, metrics=metrics))
    run.actor().train_step(request=run.request(2))
    assert "gave other numbers" not in caplog.text


def test_a_replay_with_other_weights_is_named_and_the_chain_parts_there(run, actor, caplog):
    """As on other hardware: here the record says that step 1 left other weights."""
    run.train(actor, [0])
    actor.checkpoint(step=1, best_score=None)
    run.train(actor, [1])
    result = journal.find_result(run.store, 1)
    elsewhere = journal.next_state_id(
        journal.find_result(run.store, 0).state_id,
        result.batch_sha256,
        run.config.fingerprint(),
        "0" * 32,
    )
    journal.write_result(
        run.store, dataclasses.replace(result, weights_digest="0" * 32, state_id=elsewhere)
    )
    second = run.actor()
    (after,) = run.train(second, [2])
    assert "replaying step 1 on the same batch gave other weights than recorded" in caplog.text
    fingerprint = run.config.fingerprint()
    assert after.state_id == journal.next_state_id(
        result.state_id, after.batch_sha256, fingerprint, after.weights_digest
    )
    second.checkpoint(step=3, best_score=None)
    caplog.clear()
    run.train(run.actor(), [3])  # from that checkpoint on, all follows again
    assert "other weights" not in caplog.text


def raise_store_error(*args, **kwargs):
    raise StoreError("disk full")
