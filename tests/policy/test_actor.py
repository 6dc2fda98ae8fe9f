"""Steps are taken once, and a lost actor comes back to the same bits."""

import dataclasses
import json
import logging
import multiprocessing
import signal

import pytest
from transformers import AutoModelForCausalLM, AutoTokenizer

from mortal_steps.errors import ActorStateError, CorruptFileError, EngineError, StoreError
from mortal_steps.policy import journal, weights
from mortal_steps.types import Completion, GeneratedShard
from tests.policy.rollouts import make_config
from tests.policy.runs import make_run, train_until_killed

NUM_STEPS = 5
ACCUMULATED = {"gradient_accumulation_steps": 4, "num_iterations": 2, "beta": 0.05}
LORA = {"use_lora": True, "lora": {"dropout": 0.2}}
SETUPS = {
    "full": {},
    "lora": LORA,
    "accumulated": ACCUMULATED,
    "lora-accumulated": {**LORA, **ACCUMULATED},
    "moving-reference": {
        **ACCUMULATED,
        "trl": {
            "sync_ref_model": True,
            "ref_model_sync_steps": 3,
            "use_adaptive_entropy": True,
            "entropy_target": 5.0,
        },
    },
}


@pytest.fixture(scope="session")
def uninterrupted(model_path, tmp_path_factory):
    """Digests of everything at the end of a run that nothing disturbed, by setup."""
    known = {}

    def ask(setup):
        if setup not in known:
            folder = tmp_path_factory.mktemp(f"whole-{setup}")
            run = make_run(folder, make_config(**SETUPS[setup]), model_path)
            actor = run.actor()
            actor.prepare(step=0)
            run.train(actor, range(NUM_STEPS))
            known[setup] = run.state_digests(actor, NUM_STEPS)
        return known[setup]

    return ask


@pytest.fixture
def run(model_path, tmp_path):
    return make_run(tmp_path / "run", make_config(), model_path)


@pytest.fixture
def actor(run):
    actor = run.actor()
    actor.prepare(step=0)
    return actor


# --- steps ----------------------------------------------------------------------------------------


def test_a_new_run_starts_at_step_0_with_version_0_published(run):
    ready = run.actor().prepare(step=0)
    (version,) = ready.weights
    assert (ready.step, version.version, version.path) == (0, 0, "weights/v0")
    assert ready.state_id == journal.first_state_id(run.config.fingerprint())
    assert ready.num_parameters == 87_296
    run.store.verify_folder(version.path, version.sha256)


def test_state_ids_chain_over_the_batches(run, actor):
    fingerprint = run.config.fingerprint()
    state_id = journal.first_state_id(fingerprint)
    for step, result in enumerate(run.train(actor, range(3))):
        state_id = journal.next_state_id(state_id, result.batch_sha256, fingerprint)
        assert result.state_id == state_id
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
    with pytest.raises(ActorStateError, match=r"after 3 train steps .* step 1 was never taken"):
        actor.train_step(request=run.request(3))
    with pytest.raises(ActorStateError, match=r"step 5 is outside 0\.\.4"):
        actor.train_step(request=run.request(5))


def test_without_publish_no_version_appears(run, actor):
    result = actor.train_step(request=run.request(0, publish=False))
    assert result.weights is None
    assert weights.published_versions(run.store) == [0]


def test_a_batch_with_no_reward_at_all_moves_nothing_by_its_rewards(model_path, tmp_path):
    run = make_run(tmp_path, make_config(), model_path)
    request = run.request(0)
    for reference in request.rewards:
        rewarded = run.store.read_record(reference.file, journal.RewardedShard)
        for group in rewarded.rewards:
            for scores in group:
                scores.update(dict.fromkeys(scores))
        run.store.write_record(reference.file.path, rewarded, journal.RewardedShard)
    files = [run.store.find_record(r.file.path, journal.RewardedShard)[0] for r in request.rewards]
    rewards = [dataclasses.replace(r, file=f) for r, f in zip(request.rewards, files, strict=True)]
    result = run.actor().train_step(request=dataclasses.replace(request, rewards=rewards))
    assert "reward" not in result.metrics
    assert result.metrics["grad_norm"] == 0


# --- recovery -------------------------------------------------------------------------------------


@pytest.mark.parametrize("setup", ["full", "lora", "accumulated", "moving-reference"])
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


@pytest.mark.parametrize("setup", ["lora", "accumulated"])
def test_without_a_checkpoint_the_whole_journal_is_replayed(
    model_path, tmp_path, uninterrupted, setup, caplog
):
    run = make_run(tmp_path, make_config(**SETUPS[setup]), model_path)
    run.train(run.actor(), range(4))
    last = run.actor()
    run.train(last, [4])  # nobody called `prepare`: the step itself brings the actor there
    assert run.state_digests(last, NUM_STEPS) == uninterrupted(setup)
    assert "other numbers than recorded" not in caplog.text


def test_a_killed_process_leaves_a_run_that_another_finishes_to_the_bit(
    model_path, tmp_path, uninterrupted
):
    run = make_run(tmp_path, make_config(**SETUPS["lora-accumulated"]), model_path)
    context = multiprocessing.get_context("spawn")
    process = context.Process(target=train_until_killed, args=(run, 2))
    process.start()
    process.join(timeout=120)
    assert process.exitcode == -signal.SIGKILL
    assert [path.name for path in run.store.path("weights").glob(".*")] != []
    actor = run.actor()
    assert actor.prepare(step=3).step == 3
    assert [path.name for path in run.store.path("weights").glob(".*")] == []
    run.train(actor, [3, 4])
    assert run.state_digests(actor, NUM_STEPS) == uninterrupted("lora-accumulated")


def test_after_an_error_in_a_step_the_state_is_restored(run, actor, uninterrupted, monkeypatch):
    run.train(actor, range(2))
    with monkeypatch.context() as patch:
        patch.setattr(weights, "publish", raise_store_error)
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
    journal.write_result(run.store, dataclasses.replace(result, state_id="0" * 64))
    with pytest.raises(ActorStateError, match="do not belong together"):
        run.actor().train_step(request=run.request(2))


def test_a_replay_with_other_numbers_is_reported(run, actor, caplog):
    run.train(actor, range(2))
    result = journal.find_result(run.store, 0)
    metrics = {**result.metrics, "loss": 1.25}
    journal.write_result(run.store, dataclasses.replace(result, metrics=metrics))
    run.actor().train_step(request=run.request(2))
    assert "replaying step 0 gave other numbers than recorded: {'loss'" in caplog.text


# --- checkpoints ----------------------------------------------------------------------------------


def test_a_checkpoint_is_taken_once(run, actor):
    run.train(actor, range(2))
    saved = actor.checkpoint(step=2, best_score=None)
    assert (saved.step, saved.path) == (2, "checkpoints/step-2")
    assert saved.timing.busy_s > 0
    again = actor.checkpoint(step=2, best_score=None)
    assert untimed(again) == untimed(saved)
    run.train(actor, [2])
    assert untimed(actor.checkpoint(step=2, best_score=0.5)) == untimed(saved)
    assert untimed(run.actor().checkpoint(step=2, best_score=None)) == untimed(saved)


def test_a_state_the_actor_is_past_cannot_be_saved(run, actor):
    run.train(actor, range(2))
    with pytest.raises(ActorStateError, match="holds 2 train steps and no longer the state after"):
        actor.checkpoint(step=1, best_score=None)


def test_the_last_checkpoints_and_the_best_are_kept(run, actor):
    for step in range(NUM_STEPS):
        run.train(actor, [step])
        actor.checkpoint(step=step + 1, best_score=0.5 if step + 1 == 2 else None)
    names = {path.name for path in run.store.path("checkpoints").iterdir()}
    assert names == {"step-2", "step-4", "step-5", "best.json"}


def test_a_checkpoint_of_another_configuration_is_refused(run, actor):
    run.train(actor, [0])
    actor.checkpoint(step=1, best_score=None)
    run.config = make_config(learning_rate=0.5)
    with pytest.raises(ActorStateError, match="was written with configuration"):
        run.actor().prepare(step=1)


# --- published versions, the final model ----------------------------------------------------------


def test_old_versions_are_pruned(run, actor):
    run.train(actor, range(4))
    assert weights.published_versions(run.store) == [3, 4]


def test_versions_in_use_are_kept(model_path, tmp_path):
    config = make_config(rollout={"sync_weights_every": 3})
    run = make_run(tmp_path, config, model_path)
    actor = run.actor()
    actor.prepare(step=0)
    for step in range(5):
        actor.train_step(request=run.request(step, publish=(step + 1) % 3 == 0))
    assert weights.published_versions(run.store) == [0, 3]
    assert [ready.version for ready in run.actor().prepare(step=5).weights] == [3]


@pytest.mark.parametrize("setup", ["full", "lora"])
def test_the_final_model_is_the_trained_one(model_path, tmp_path, setup):
    training = SETUPS[setup]
    if setup == "lora":
        training = {**training, "lora": {"merge_final": True}}
    run = make_run(tmp_path, make_config(**training), model_path)
    actor = run.actor()
    results = run.train(actor, range(NUM_STEPS))
    final = actor.save_final()
    # A lost actor replays the run, removes what it left half-written and writes the same bits.
    left = [run.store.path(name) for name in ("weights/.v9.a.partial", ".final.b.partial")]
    for folder in left:
        folder.mkdir()
    assert run.actor().save_final() == final
    assert not any(folder.exists() for folder in left)
    merged = final.merged_path or final.path
    published = run.store.path(results[-1].weights.path)
    assert weights.weights_digest(run.store.path(merged)) == weights.weights_digest(published)
    AutoModelForCausalLM.from_pretrained(run.store.path(merged))
    for folder in {final.path, merged}:
        tokenizer = AutoTokenizer.from_pretrained(run.store.path(folder))
        assert tokenizer("cab")["input_ids"] == [5, 3, 4]
        saved = (run.store.path(folder) / "tokenizer_config.json").read_text()
        assert "local" not in saved  # which would follow HF_HUB_OFFLINE
    assert (final.merged_path is None) == (setup == "full")
    has_adapter = run.store.path("final/adapter_model.safetensors").exists()
    assert has_adapter == (setup == "lora")
    if has_adapter:  # its configuration is the same in every process
        names = json.loads(run.store.path("final/adapter_config.json").read_text())
        assert names["target_modules"] == sorted(names["target_modules"])


def test_an_actor_that_another_one_overtook_saves_the_same_model(run, actor):
    other = run.actor()
    requests = [run.request(step) for step in range(NUM_STEPS)]
    results = [other.train_step(request=request) for request in requests]
    late = [actor.train_step(request=request) for request in requests]
    assert [untimed(result) for result in late] == [untimed(result) for result in results]
    assert actor.save_final() == other.save_final()


# --- shards that do not make a batch --------------------------------------------------------------


def test_a_missing_shard_is_noticed(run, actor):
    request = run.request(0)
    half = dataclasses.replace(request, rewards=request.rewards[:1])
    with pytest.raises(StoreError, match=r"groups of \[4, 4\] completions; the run trains on 4"):
        actor.train_step(request=half)
    assert journal.find_entry(run.store, 0) is None
    assert actor.train_step(request=request).step == 0


def test_shards_of_another_step_are_noticed(run, actor):
    other = dataclasses.replace(run.request(1), step=0)
    with pytest.raises(StoreError, match=r"sampled for step 1 with version 1; step 0 wants"):
        actor.train_step(request=other)


def test_a_shard_altered_on_disk_is_noticed(run, actor):
    request = run.request(0)
    flip_a_byte(run.store.path(request.rewards[1].generation.file.path))
    with pytest.raises(CorruptFileError, match=r"generations-1\.json is damaged"):
        actor.train_step(request=request)


def test_an_empty_completion_is_named(run, actor):
    request = run.request(0)
    reference = request.rewards[0]
    shard = run.store.read_record(reference.generation.file, GeneratedShard)
    empty = dataclasses.replace(shard.groups[0].completions[0], token_ids=[], logprobs=[])
    assert isinstance(empty, Completion)
    shard.groups[0].completions[0] = empty
    file = run.store.write_record(reference.generation.file.path, shard, GeneratedShard)
    generation = dataclasses.replace(reference.generation, file=file)
    rewarded = run.store.read_record(reference.file, journal.RewardedShard)
    rewarded = dataclasses.replace(rewarded, generation_sha256=file.sha256)
    rewards_file = run.store.write_record(reference.file.path, rewarded, journal.RewardedShard)
    changed = dataclasses.replace(reference, file=rewards_file, generation=generation)
    request = dataclasses.replace(request, rewards=[changed, request.rewards[1]])
    with pytest.raises(EngineError, match="a completion of p0-0 has 0 tokens and 0 logprobs"):
        actor.train_step(request=request)


def untimed(answer):
    return dataclasses.replace(answer, timing=None)


def flip_a_byte(path):
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


def raise_store_error(*args, **kwargs):
    raise StoreError("disk full")
