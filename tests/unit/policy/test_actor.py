"""Steps are taken once, each with the batch that was sampled for it."""

import dataclasses

import pytest

from mortal_steps.errors import ActorStateError, CorruptFileError, EngineError, StoreError
from mortal_steps.policy import journal
from mortal_steps.policy.algorithms.stepping.stepper import TrlStepper
from mortal_steps.policy.batches import ScoredRollouts
from mortal_steps.policy.on_disk import weights
from mortal_steps.types import Completion, GeneratedShard, RewardedShard
from tests.support.damage import flip_a_byte
from tests.support.policy.rollouts import make_config
from tests.support.policy.runs import NUM_STEPS, make_run, untimed
from tests.support.refused import refused


def test_a_new_run_starts_at_step_0_with_version_0_published(run):
    ready = run.actor().prepare(step=0)
    (version,) = ready.weights
    assert (ready.step, version.version, version.path) == (0, 0, "weights/v0")
    assert ready.state_id == journal.first_state_id(run.config.fingerprint())
    assert (ready.num_trained, ready.num_parameters) == (87_296, 87_296)
    run.store.verify_folder(version.path, version.sha256)


def test_state_ids_chain_over_the_batches_and_the_weights(run, actor):
    fingerprint = run.config.fingerprint()
    state_id = history_id = journal.first_state_id(fingerprint)
    for step, result in enumerate(run.train(actor, range(3))):
        batch = result.batch_sha256
        state_id = journal.next_state_id(state_id, batch, fingerprint, result.weights_digest)
        history_id = journal.next_state_id(history_id, batch, fingerprint)
        assert (result.state_id, result.history_id) == (state_id, history_id)
        assert (result.step, result.optimizer_steps, result.weights.version) == (
            step,
            step + 1,
            step + 1,
        )
        assert result.timing.busy_s > 0


def test_asked_again_it_answers_the_record_and_trains_no_further(run, actor, uninterrupted):
    for step in range(NUM_STEPS):
        request = run.request(step)
        first = actor.train_step(request=request)
        again = actor.train_step(request=request)
        fresh = run.actor().train_step(request=request)
        assert untimed(first) == untimed(again) == untimed(fresh)
    assert run.state_digests(actor, NUM_STEPS) == uninterrupted("full")


def test_a_step_is_not_taken_with_another_batch(run, actor):
    run.train(actor, range(2))
    for step in range(2):
        with pytest.raises(ActorStateError, match=f"step {step} was taken with batch"):
            actor.train_step(request=run.request(step, content=step + 10))


def test_a_step_beyond_the_journal_is_out_of_reach(run, actor):
    run.train(actor, [0])
    with refused(ActorStateError, "3 train steps", "step 1"):
        actor.train_step(request=run.request(3))
    with refused(ActorStateError, "step 5", "0..4"):
        actor.train_step(request=run.request(5))


def test_without_publish_no_version_appears(run, actor):
    result = actor.train_step(request=run.request(0, publish=False))
    assert result.weights is None
    assert weights.published_versions(run.store) == [0]


def test_a_batch_with_no_reward_at_all_moves_nothing_by_its_rewards(model_path, tmp_path):
    run = make_run(tmp_path, make_config(), model_path)
    request = run.request(0)
    shards = request.batch.rewards
    for reference in shards:
        rewarded = run.store.read_record(reference.file, RewardedShard)
        for group in rewarded.rewards:
            for scores in group:
                scores.update(dict.fromkeys(scores))
        run.store.write_record(reference.file.path, rewarded, RewardedShard)
    files = [run.store.find_record(r.file.path, RewardedShard)[0] for r in shards]
    rewards = [dataclasses.replace(r, file=f) for r, f in zip(shards, files, strict=True)]
    result = run.actor().train_step(
        request=dataclasses.replace(request, batch=ScoredRollouts(rewards=rewards))
    )
    assert "reward" not in result.metrics
    assert result.metrics["grad_norm"] == 0


# --- shards that do not make a batch --------------------------------------------------------------


def test_a_missing_shard_is_noticed(run, actor):
    request = run.request(0)
    half = dataclasses.replace(request, batch=ScoredRollouts(rewards=request.batch.rewards[:1]))
    with refused(StoreError, "[4, 4]", "trains on 4"):
        actor.train_step(request=half)
    assert journal.find_entry(run.store, 0) is None
    assert actor.train_step(request=request).step == 0


def test_shards_of_another_step_are_noticed(run, actor):
    other = dataclasses.replace(run.request(1), step=0)
    with refused(StoreError, "step 1", "version 1", "step 0"):
        actor.train_step(request=other)


def test_a_shard_altered_on_disk_is_noticed(run, actor):
    request = run.request(0)
    flip_a_byte(run.store.path(request.batch.rewards[1].generation.file.path))
    with pytest.raises(CorruptFileError, match=r"generations-1\.parquet is damaged"):
        actor.train_step(request=request)


def test_an_empty_completion_is_named(run, actor):
    request = run.request(0)
    reference = request.batch.rewards[0]
    shard = run.store.read_record(reference.generation.file, GeneratedShard)
    empty = dataclasses.replace(shard.groups[0].completions[0], token_ids=[], logprobs=[])
    assert isinstance(empty, Completion)
    shard.groups[0].completions[0] = empty
    file = run.store.write_record(reference.generation.file.path, shard, GeneratedShard)
    generation = dataclasses.replace(reference.generation, file=file)
    rewarded = run.store.read_record(reference.file, RewardedShard)
    rewarded = dataclasses.replace(rewarded, generation_sha256=file.sha256)
    rewards_file = run.store.write_record(reference.file.path, rewarded, RewardedShard)
    changed = dataclasses.replace(reference, file=rewards_file, generation=generation)
    request = dataclasses.replace(
        request, batch=ScoredRollouts(rewards=[changed, request.batch.rewards[1]])
    )
    with refused(EngineError, "p0-0", "0 tokens", "0 logprobs"):
        actor.train_step(request=request)


@pytest.mark.parametrize(
    ("rollout", "emptied"),
    [
        ({"sleep_while_training": True}, [1, 1]),
        ({"weight_sync": "checkpoint"}, [1, 1]),
        ({}, [0, 0]),
    ],
)
def test_the_gpu_is_free_of_the_actors_cache_when_an_engine_wakes_or_starts(
    tmp_path, model_path, monkeypatch, rollout, emptied
):
    run = make_run(tmp_path / "run", make_config(rollout=rollout), model_path)
    actor, calls = run.actor(), []
    monkeypatch.setattr("mortal_steps.policy.gpu.empty_cache", lambda: calls.append("emptied"))
    take = TrlStepper.train_step
    monkeypatch.setattr(
        TrlStepper,
        "train_step",
        lambda *args, **kw: (calls.append("trained"), take(*args, **kw))[1],
    )
    actor.prepare(step=0)
    assert calls == ["emptied"]
    for step, times in enumerate(emptied):
        calls.clear()
        actor.train_step(request=run.request(step))
        assert calls == ["trained"] + ["emptied"] * times
    calls.clear()
    run.actor().prepare(step=2)  # which replays both
    assert calls == ["trained", "trained", "emptied"]
