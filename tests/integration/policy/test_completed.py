"""A completed run keeps what a run that continues from it needs, and the disk has it once."""

import shutil

import pytest

from mortal_steps.config.checkpoints import CheckpointsConfig
from mortal_steps.policy.on_disk import checkpoints, weights
from mortal_steps.store import run_store
from mortal_steps.store.files import digest_file
from tests.support.damage import flip_a_byte
from tests.support.policy.rollouts import make_config
from tests.support.policy.runs import NUM_STEPS, make_run

MODEL = "model.safetensors"


@pytest.fixture(autouse=True)
def every_size(monkeypatch):
    """The model of these tests is smaller than what is worth a link."""
    monkeypatch.setattr(run_store, "SHARED_BYTES", 0)


def completed(folder, model_path, *, best=None, keep=None, **settings):
    """Return a run with checkpoints after each of its last three steps, and its final model."""
    config = make_config(**settings)
    config = config.model_copy(update={"checkpoints": CheckpointsConfig(**(keep or {}))})
    run = make_run(folder, config, model_path)
    actor = run.actor()
    actor.prepare(step=0)
    for step in range(NUM_STEPS):
        run.train(actor, [step])
        if step >= NUM_STEPS - 3:
            is_best = best == step + 1
            actor.checkpoint(step=step + 1, best_score=1.0 if is_best else None)
    return run, actor.save_final()


def test_what_is_left_leads_on(model_path, tmp_path, uninterrupted):
    whole, _ = completed(tmp_path / "whole", model_path, keep={"keep_completed": 2})
    run, final = completed(tmp_path / "run", model_path)
    assert checkpoints.saved_steps(run.store) == [NUM_STEPS]
    assert weights.published_versions(run.store) == []
    saved = run.store.path(checkpoints.path_of(NUM_STEPS))
    assert (run.store.path("final") / MODEL).samefile(saved / MODEL)
    assert run.actor().save_final() == final, "also when a caller has lost the answer"
    assert run.state_digests(run.actor(), NUM_STEPS) == uninterrupted("full")
    assert longer(run).state_id == longer(whole).state_id


def longer(run):
    """Take a step more than the run had, from the checkpoint at its end."""
    run.num_steps += 1
    actor = run.actor()
    assert [each.version for each in actor.prepare(step=NUM_STEPS).weights] == [NUM_STEPS]
    return run.train(actor, [NUM_STEPS])[0]


@pytest.mark.parametrize(
    ("keep", "kept"),
    [
        ({}, [3, 5]),
        ({"keep_best": False}, [5]),
        ({"keep_completed": 2}, [3, 4, 5]),
        ({"keep_last": 3, "keep_best": False}, [3, 4, 5]),
        ({"keep_last": 3, "keep_completed": 1}, [3, 5]),
    ],
)
def test_it_keeps_the_newest_and_the_best_checkpoint(model_path, tmp_path, keep, kept):
    run, _ = completed(tmp_path, model_path, best=3, keep=keep)
    assert checkpoints.saved_steps(run.store) == kept


def test_versions_that_a_checkpoint_does_not_lead_to_stay(model_path, tmp_path):
    run, _ = completed(tmp_path, model_path, rollout={"staleness": 1})
    assert weights.published_versions(run.store) == [NUM_STEPS - 1]


def test_damage_that_strikes_all_of_it_is_noticed_and_made_good(model_path, tmp_path):
    run, final = completed(tmp_path, model_path)
    model = run.store.path("final") / MODEL
    whole = digest_file(model)
    flip_a_byte(model)
    assert checkpoints.find(run.store, NUM_STEPS) is None
    again = run.actor().save_final()  # replayed from the beginning
    assert (again.weights_sha256, digest_file(model)) == (final.weights_sha256, whole)


def test_a_final_model_outlives_the_checkpoint_whose_weights_it_shares(model_path, tmp_path):
    run, final = completed(tmp_path, model_path)
    shutil.rmtree(run.store.path("checkpoints"))
    run.store.verify_folder("final", final.sha256)
