"""`mortal export`: folders that transformers and PEFT load, with the weights of the run."""

import json
import shutil

import pytest
import torch
from peft import PeftModel
from transformers import AutoModelForCausalLM, AutoTokenizer
from typer.testing import CliRunner

from mortal.cli import app
from mortal_steps.errors import ConfigError, ModelError, StoreError
from mortal_steps.policy.on_disk.weights import weights_digest
from mortal_steps.runs.run import find_run
from mortal_steps.serving.bases import base_folder
from mortal_steps.serving.exporting import export as export_run
from tests.support.bare_flow import one_thread
from tests.support.project import write_project
from tests.support.undisturbed import undisturbed

REWARD = """
def varied(completions, **kwargs):
    return [sum(map(ord, text)) % 11 / 10 for text in completions]
"""
"""Other for nearly every completion, so that each step moves the weights."""
TWO_STEPS = [
    "training.max_steps=2",
    "checkpoints.save_steps=1",
    "checkpoints.keep_completed=2",
    'rewards.functions=["rewards.py:varied"]',
]
LORA = ["training.use_lora=true", "training.lora.r=4"]


@pytest.fixture(scope="module")
def project(tmp_path_factory):
    folder = tmp_path_factory.mktemp("exported")
    write_project(folder)
    (folder / "rewards.py").write_text(REWARD)
    return folder


@pytest.fixture(scope="module")
def full(project):
    with one_thread():
        return undisturbed(project, TWO_STEPS, "full")


@pytest.fixture(scope="module")
def lora(project):
    with one_thread():
        return undisturbed(project, [*TWO_STEPS, *LORA], "lora")


@pytest.fixture
def export(project, tmp_path):
    """Export a run of the project by the command line; returns the folder and what it printed."""

    def call(run, *options, to="model"):
        runs, folder = project / "runs", tmp_path / to
        words = ["export", run.info.run_id, folder, "--runs-dir", runs, *options]
        done = CliRunner().invoke(app, [*map(str, words)])
        if done.exception is not None and not isinstance(done.exception, SystemExit):
            raise done.exception
        return folder, done.output

    return call


def loaded(folder):
    return AutoModelForCausalLM.from_pretrained(folder).state_dict()


def equal(one, other):
    return one.keys() == other.keys() and all(torch.equal(one[name], other[name]) for name in one)


def test_the_final_model_is_written_with_its_tokenizer_and_nothing_of_mortals(full, export):
    folder, said = export(full)
    final = full.store.path("final")
    assert weights_digest(folder) == weights_digest(final)
    assert AutoTokenizer.from_pretrained(folder)("abc=").input_ids
    names = {path.name for path in folder.iterdir()}
    assert names == {path.name for path in final.iterdir()} - {"manifest.json"}
    assert f"the model of run full after step 2 is in {folder}" in said


def test_a_step_is_exported_from_what_the_run_has_kept_of_it(full, export):
    folder, _ = export(full, "--step", "1")
    assert weights_digest(folder) == weights_digest(full.store.path("checkpoints/step-1"))
    assert weights_digest(folder) != weights_digest(full.store.path("final"))
    assert AutoTokenizer.from_pretrained(folder)("abc=").input_ids


def test_weights_are_cast_and_the_configuration_says_so(full, export):
    folder, _ = export(full, "--dtype", "bfloat16")
    cast = {name: each.bfloat16() for name, each in loaded(full.store.path("final")).items()}
    assert equal(loaded(folder), cast)
    assert json.loads((folder / "config.json").read_text())["dtype"] == "bfloat16"


def test_an_adapter_is_added_to_its_base(lora, export):
    folder, _ = export(lora)
    base = AutoModelForCausalLM.from_pretrained(base_folder(lora))
    before = {name: each.clone() for name, each in base.state_dict().items()}
    adapted = PeftModel.from_pretrained(base, lora.store.path("final"))
    merged = adapted.merge_and_unload().state_dict()
    assert equal(loaded(folder), merged)
    assert not equal(merged, before)
    assert AutoTokenizer.from_pretrained(folder)("abc=").input_ids


def test_an_adapter_is_written_alone(lora, export):
    folder, said = export(lora, "--adapter", "--dtype", "bfloat16")
    assert not (folder / "config.json").exists() and not (folder / "optimizer.pt").exists()
    base = AutoModelForCausalLM.from_pretrained(base_folder(lora))
    rounded = PeftModel.from_pretrained(base, folder).state_dict()
    base = AutoModelForCausalLM.from_pretrained(base_folder(lora))
    trained = PeftModel.from_pretrained(base, lora.store.path("final")).state_dict()
    changed = [name for name in trained if "lora_" in name]
    assert changed
    for name in changed:
        assert torch.equal(rounded[name].bfloat16(), trained[name].bfloat16())
    assert "the adapter of run lora after step 2" in said


def test_an_adapter_of_a_checkpoint_comes_without_the_trainers_state(lora, export):
    assert (lora.store.path("checkpoints/step-1") / "optimizer.pt").exists()
    assert not lora.store.path("weights/v1").exists()
    folder, _ = export(lora, "--step", "1", "--adapter")
    trainers = {"optimizer.pt", "scheduler.pt", "state.json", "trainer_state.json"}
    assert not trainers & {path.name for path in folder.iterdir()}


def test_mistakes_are_named(full, lora, export, tmp_path):
    (tmp_path / "model").mkdir()
    with pytest.raises(ModelError, match="model already exists; name a folder that does not"):
        export(full)
    with pytest.raises(ConfigError, match="run full trains the whole model and has no adapter"):
        export(full, "--adapter", to="other")
    with pytest.raises(StoreError, match="--step 9: run full has 2 steps; it holds models of"):
        export(full, "--step", "9", to="other")
    _, said = export(full, "--dtype", "int8", to="other")
    assert "float32" in said and "bfloat16" in said
    assert [path.name for path in tmp_path.iterdir()] == ["model"], "nothing is left of a mistake"


def test_weights_of_a_run_that_goes_on_are_written_and_nothing_is_left_of_that(
    full, tmp_path, project
):
    copied = tmp_path / "runs" / full.info.run_id
    shutil.copytree(full.store.root, copied)
    shutil.copytree(project / "runs" / ".models", tmp_path / "runs" / ".models")
    run = find_run(copied.parent, copied.name)
    run.update(status="running", final=None)
    with run.store.committing_folder("weights/v9") as folder:
        for file in run.store.path("final").iterdir():
            if file.name != "manifest.json":
                shutil.copy(file, folder)
    saved = export_run(run, tmp_path / "model", step=None, dtype=None, adapter_alone=False)
    assert saved.path == "weights/v9"
    assert weights_digest(tmp_path / "model") == weights_digest(run.store.path("final"))
    assert AutoTokenizer.from_pretrained(tmp_path / "model")("abc=").input_ids
    assert not run.store.path("exported").exists()
