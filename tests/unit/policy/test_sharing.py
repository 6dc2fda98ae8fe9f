"""`direct` on the actor's side: what is announced, the folder that follows, and what fails."""

from __future__ import annotations

import threading

import pytest
import torch
from safetensors.torch import load_file
from transformers import Qwen3MoeConfig, Qwen3MoeForCausalLM

from mortal_steps.errors import ConfigError, DiskError, WeightsMismatchError
from mortal_steps.policy import journal
from mortal_steps.policy.algorithms.grpo import GRPO
from mortal_steps.policy.model_files.writing import published_tensors, save_model
from mortal_steps.policy.on_disk import weights
from mortal_steps.policy.sharing import Sharing
from mortal_steps.store import RunStore, run_store
from mortal_steps.store.segments import SHARED_MEMORY, opened, prefix_of, remove_segments
from mortal_steps.system.background import BackgroundClock
from tests.support.damage import flip_a_byte
from tests.support.policy.rollouts import make_batch, make_config
from tests.support.policy.runs import make_run

PROBE = [5, 6, 7, 30, 5, 6, 7, 30]
LORA = {"use_lora": True, "lora": {"dropout": 0.2}}
DIRECT = {"rollout": {"weight_sync": "direct"}}


@pytest.fixture
def store(tmp_path):
    yield RunStore(tmp_path / "run")
    remove_segments(tmp_path / "run")


@pytest.fixture
def run(model_path, tmp_path):
    yield make_run(tmp_path / "run", make_config(**DIRECT), model_path)
    remove_segments(tmp_path / "run")


def make_stepper(model_path, folder, **training):
    config = make_config(learning_rate=1e-2, **training)
    stepper = GRPO().stepper(config, model_path=model_path, num_steps=3, output_dir=folder)
    stepper.begin()
    stepper.train_step(make_batch(config, 0), seed=0)
    return stepper


def segments_of(store):
    return sorted(path.name for path in SHARED_MEMORY.glob(f"{prefix_of(store.root)}*"))


@pytest.mark.parametrize(
    "training",
    [{}, LORA, {"model": {"dtype": "bfloat16"}}],
    ids=["full", "lora", "bfloat16"],
)
def test_the_folder_is_the_one_that_is_published_without_shared_memory(
    model_path, tmp_path, store, training
):
    stepper = make_stepper(model_path, tmp_path / "out", **training)
    sharing = Sharing(store, BackgroundClock())
    announced = sharing.publish(stepper, 1, PROBE, keep=())
    sharing.join()
    other = RunStore(tmp_path / "other")
    plain = weights.publish(other, stepper, 1, PROBE)
    assert announced == plain
    assert weights.find(store, 1) == plain
    for path in other.path(plain.path).iterdir():
        assert store.path(f"weights/v1/{path.name}").read_bytes() == path.read_bytes()
    with opened(announced.segment) as shared:
        assert bytes(shared.payload) == other.path("weights/v1/model.safetensors").read_bytes()
        assert shared.files.keys() | {shared.payload_name} == {
            path.name for path in other.path(plain.path).iterdir()
        }


def test_tied_tensors_and_names_of_old_are_written_as_transformers_does(tmp_path):
    """A mixture of experts, whose modules hold fused what its files hold one by one."""
    config = Qwen3MoeConfig(
        vocab_size=30, hidden_size=16, num_hidden_layers=1, num_attention_heads=2,
        num_key_value_heads=1, head_dim=8, moe_intermediate_size=8, intermediate_size=16,
        num_experts=2, num_experts_per_tok=1, tie_word_embeddings=True,
    )  # fmt: skip
    model = Qwen3MoeForCausalLM(config)
    save_model(model, tmp_path / "model")
    written = load_file(tmp_path / "model" / "model.safetensors")
    shared = published_tensors(model)
    assert shared.keys() == written.keys() != dict(model.named_parameters()).keys()
    assert all(torch.equal(shared[name], written[name]) for name in written)


def test_memory_is_used_again_for_versions_that_nobody_samples(model_path, tmp_path, store):
    stepper, sharing = make_stepper(model_path, tmp_path / "out"), Sharing(store, BackgroundClock())
    first = sharing.publish(stepper, 1, PROBE, keep=[1])
    second = sharing.publish(stepper, 2, PROBE, keep=[2])
    assert second.segment.name == first.segment.name
    assert sharing.find(1) is None
    third = sharing.publish(stepper, 3, PROBE, keep=[2, 3])
    assert len(segments_of(store)) == 2
    with opened(second.segment) as late:
        fourth = sharing.publish(stepper, 4, PROBE, keep=[3, 4])
        assert late is not None
    assert len({third.segment.name, fourth.segment.name, second.segment.name}) == 3
    assert segments_of(store) == sorted([third.segment.name, fourth.segment.name])
    sharing.join()
    assert weights.published_versions(store) == [1, 2, 3, 4]


def test_a_disk_that_is_full_is_heard_of_at_the_next_step(run, monkeypatch):
    actor = run.actor()
    actor.prepare(step=0)
    run.train(actor, [0])
    sharing = actor._memory._publisher._sharing
    sharing.join()  # v1 is on disk before it is full

    def full(relative, files, digests):
        raise DiskError(f"cannot write {relative}: the disk is full")

    with monkeypatch.context() as patch:
        patch.setattr(sharing._store, "commit_folder", full)
        run.train(actor, [1])
        with pytest.raises(DiskError, match="weights/v2: the disk is full"):
            run.train(actor, [2])
    assert journal.find_result(run.store, 2) is None
    assert not run.store.path("weights/v2").exists()
    run.train(actor, [2])  # the state is restored by replay, and v2 published on the way
    assert weights.find(run.store, 2) == journal.find_result(run.store, 1).weights


@pytest.mark.parametrize("waits", ["checkpoint", "prepare", "train_step"])
def test_nothing_counts_on_a_version_before_it_is_on_disk(run, monkeypatch, waits):
    actor = run.actor()
    actor.prepare(step=0)
    sharing = actor._memory._publisher._sharing
    may_write, commit = threading.Event(), sharing._store.commit_folder

    def slowly(*given):
        assert may_write.wait(60)
        commit(*given)

    monkeypatch.setattr(sharing._store, "commit_folder", slowly)
    (result,) = run.train(actor, [0])
    assert result.weights.segment is not None
    assert not run.store.path("weights/v1").exists()
    assert journal.find_result(run.store, 0).weights == result.weights  # with its digest
    assert journal.find_result(run.store, 0).weights.segment is None
    again = actor.train_step(request=run.request(0))
    assert again.weights.segment == result.weights.segment  # to a flow that lost the answer
    asked = {
        "checkpoint": lambda: actor.checkpoint(step=1, best_score=None),
        "prepare": lambda: actor.prepare(step=1),
        "train_step": lambda: run.train(actor, [1]),
    }[waits]
    thread = threading.Thread(target=asked)
    thread.start()
    thread.join(timeout=0.5)
    assert thread.is_alive()
    assert journal.find_result(run.store, 1) is None
    may_write.set()
    thread.join(timeout=60)
    assert weights.find(run.store, 1) == result.weights


def test_a_state_given_up_leaves_the_folder_that_is_being_written(run, monkeypatch):
    actor = run.actor()
    actor.prepare(step=0)
    may_end, replace_folder = threading.Event(), run_store.replace_folder

    def slowly(source, target):
        if target.name == "v1":
            assert may_end.wait(60)
        replace_folder(source, target)

    monkeypatch.setattr(run_store, "replace_folder", slowly)
    (result,) = run.train(actor, [0])
    actor._memory.held.stepper.train_step = lambda *_, **__: 1 / 0
    with pytest.raises(ZeroDivisionError):
        run.train(actor, [1])
    threading.Timer(0.2, may_end.set).start()
    run.train(actor, [1])
    assert weights.find(run.store, 1) == result.weights


def test_a_version_with_other_weights_is_not_replaced(run):
    actor = run.actor()
    actor.prepare(step=0)
    held = actor._memory.held
    held.stepper.train_step(make_batch(run.config, 3), seed=3)
    with pytest.raises(WeightsMismatchError, match="version 0 is published with weights"):
        run.actor()._publisher.publish(held.stepper, 0)


def test_a_damaged_folder_of_an_earlier_actor_is_published_again(run):
    first = run.actor()
    before = first.prepare(step=0).weights
    flip_a_byte(run.store.path("weights/v0/model.safetensors"))
    after = run.actor().prepare(step=0).weights
    assert after == before
    assert weights.find(run.store, 0) == before[0]
    assert segments_of(run.store) == [after[0].segment.name]  # the first actor's is gone


def test_a_policy_without_tensors_is_named(store):
    class Plain:
        def score(self, token_ids):
            return []

    with pytest.raises(ConfigError, match="Plain has no policy_tensors"):
        Sharing(store, BackgroundClock()).publish(Plain(), 0, PROBE, keep=())


def test_a_model_of_strange_numbers_is_named(model_path, tmp_path, store):
    stepper = make_stepper(model_path, tmp_path / "out")
    stepper.policy_tensors = lambda: {"a.weight": torch.zeros(2, dtype=torch.complex128)}
    with pytest.raises(ConfigError, match=r"a\.weight is of type torch.complex128"):
        Sharing(store, BackgroundClock()).publish(stepper, 0, PROBE, keep=())
