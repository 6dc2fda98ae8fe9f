"""Which steps of a run have a model, and in which folder."""

import logging

import pytest

from mortal_steps.errors import CorruptFileError, StoreError
from mortal_steps.runs.run import Run
from mortal_steps.serving.models import choose
from mortal_steps.serving.whole import find_whole, whole_model
from mortal_steps.store import RunStore
from tests.support.damage import flip_a_byte
from tests.support.refused import refused
from tests.support.saved_models import begun, commit, ended


def test_a_run_that_has_ended_serves_its_final_model(tmp_path):
    run = begun(tmp_path)
    commit(run, "weights/v9")
    commit(run, "checkpoints/step-9")
    ended(run)
    saved = choose(run, None)
    assert (saved.step, saved.kind, saved.path) == (9, "model", "final")


def test_a_run_that_goes_on_serves_its_newest_step(tmp_path):
    run = begun(tmp_path)
    commit(run, "checkpoints/step-4")
    commit(run, "weights/v4")
    commit(run, "weights/v5")
    assert choose(run, None).path == "weights/v5"
    # Published weights need no export.
    assert choose(run, 4).path == "weights/v4"


def test_a_checkpoint_without_published_weights_is_exported(tmp_path):
    run = begun(tmp_path)
    commit(run, "checkpoints/step-4")
    saved = choose(run, 4)
    assert (saved.kind, saved.path) == ("parameters", "checkpoints/step-4")


def test_another_step_is_refused_with_those_that_there_are(tmp_path):
    run = begun(tmp_path)
    commit(run, "checkpoints/step-4")
    commit(run, "weights/v5")
    with pytest.raises(StoreError, match="steps 4, 5"):
        choose(run, 3)
    with refused(StoreError, "--step 12", "9 steps"):
        choose(run, 12)


def test_a_run_that_has_saved_nothing_says_where_it_stands(tmp_path):
    with pytest.raises(StoreError, match="step 0 of 9"):
        choose(begun(tmp_path), None)


@pytest.mark.parametrize(
    ("merged", "step", "path"),
    [(True, None, "final-merged"), (False, None, "weights/v9"), (True, 4, "weights/v4")],
)
def test_a_whole_model_is_preferred_to_an_adapter(tmp_path, merged, step, path):
    run = begun(tmp_path, lora=True)
    for folder in ("checkpoints/step-4", "weights/v4", "weights/v9"):
        commit(run, folder)
    ended(run, merged=merged, adapter=True)
    assert choose(run, step).path == path
    assert whole_model(run, choose(run, step)) == path


def test_an_adapter_that_was_published_alone_is_served_as_one(tmp_path):
    run = begun(tmp_path, lora=True)
    with run.store.committing_folder("weights/v5") as folder:
        (folder / "adapter_config.json").write_text("{}")
    saved = choose(run, 5)
    assert (saved.kind, saved.path) == ("adapter", "weights/v5")


def test_damaged_weights_are_not_served(tmp_path, caplog):
    run = begun(tmp_path)
    commit(run, "weights/v5")
    flip_a_byte(run.store.path("weights/v5/model.safetensors"))
    with refused(CorruptFileError, "step 5", "damaged", "v5/model.safetensors"):
        choose(run, None)
    # The checkpoint holds the same weights.
    commit(run, "checkpoints/step-5")
    with caplog.at_level(logging.WARNING):
        assert choose(run, None).path == "checkpoints/step-5"
    assert "v5/model.safetensors is damaged" in caplog.text


def test_a_final_model_that_was_replaced_is_not_served(tmp_path):
    run = begun(tmp_path)
    ended(run)
    with run.store.committing_folder("final") as folder:
        (folder / "model.safetensors").write_text("another")
    with pytest.raises(CorruptFileError):
        choose(run, None)


def test_a_model_that_its_run_removes_meanwhile_is_not_damaged(tmp_path, monkeypatch):
    """The next one is taken, or those that are left are named."""
    run = begun(tmp_path)
    commit(run, "weights/v5")
    verify = run.store.verify_folder

    def goes_on(path, sha256):
        if path == "weights/v5":
            commit(run, "weights/v6")
            run.store.remove_folder(path)
        return verify(path, sha256)

    monkeypatch.setattr(run.store, "verify_folder", goes_on)
    assert choose(run, None).path == "weights/v6"
    commit(run, "weights/v5")
    with pytest.raises(StoreError, match="no model of step 5; it holds models of the steps 6"):
        choose(run, 5)


def test_a_model_that_is_gone_for_good_is_missing(tmp_path, monkeypatch):
    run = begun(tmp_path)
    ended(run)
    run.store.path("final").rename(tmp_path / "elsewhere")
    verify, looks = run.store.verify_folder, []

    def counted(path, sha256):
        looks.append(path)
        assert len(looks) < 9, "looks for ever"
        return verify(path, sha256)

    monkeypatch.setattr(run.store, "verify_folder", counted)
    for find in (choose, find_whole):
        with refused(CorruptFileError, "step 9", "final/manifest.json is missing"):
            find(run, None)
        looks.clear()


def test_the_final_model_of_a_run_that_ends_meanwhile_is_taken(tmp_path):
    """A command has read the manifest before the run ended, and removed what it sampled with."""
    run = begun(tmp_path)
    commit(run, "weights/v9")
    begun_before = Run(RunStore(run.store.root), run.config, run.info)
    verify = begun_before.store.verify_folder

    def ends(path, sha256):
        if path == "weights/v9":
            ended(run)
            run.store.remove_folder(path)
        return verify(path, sha256)

    begun_before.store.verify_folder = ends
    assert choose(begun_before, None).path == "final"
