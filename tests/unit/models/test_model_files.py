"""A local model that is overwritten between two starts of a run is noticed."""

import json
import os
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save_file

from mortal_steps.config import ModelConfig, NewModelConfig
from mortal_steps.errors import ModelError
from mortal_steps.models import local_folder
from mortal_steps.models.local_folder import check_folder, describe_model
from mortal_steps.models.shape import count_parameters
from mortal_steps.orchestration.open_run import create_run, open_run
from mortal_steps.plan.run_config import RunConfig
from mortal_steps.runs.run import find_run
from mortal_steps.types import FinalModel
from tests.support.refused import refused

CONTENT = {
    "config.json": "{}",
    "model.safetensors": "weights",
    "tokenizer.json": "{}",
    "README.md": "a model",
}


@pytest.fixture
def config(tmp_path, monkeypatch):
    """Of a run that was created with a local model."""
    monkeypatch.chdir(tmp_path)
    Path("model").mkdir()
    for name, text in CONTENT.items():
        Path("model", name).write_text(text)
    config = RunConfig(run_id="run", runs_dir="runs", model=ModelConfig(name_or_path="model"))
    create_run(Path("runs/run"), config, [], [])
    return config


def test_what_a_model_is_made_of(config):
    assert describe_model(config.model).keys() == CONTENT.keys() - {"README.md"}
    assert describe_model(ModelConfig(name_or_path="nobody/nothing")) == {}
    assert describe_model(ModelConfig(new=NewModelConfig())) == {}


@pytest.mark.parametrize(
    ("name", "text", "change"),
    [
        ("model.safetensors", "wEights", "model.safetensors was changed"),
        ("model.safetensors", None, "model.safetensors is missing"),
        ("tokenizer.json", "{ }", "tokenizer.json was changed"),
        ("adapter_config.json", "{}", "adapter_config.json is new"),
    ],
)
def test_a_changed_model_stops_the_run(config, name, text, change):
    path = Path("model", name)
    before = path.stat() if path.exists() else None
    if text is None:
        path.unlink()
    else:
        path.write_text(text)
    if text and before:  # as a copy that keeps the times
        os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    with pytest.raises(ModelError, match=rf"/model is not .* began with \({change}\); restore it"):
        open_run(config)


def test_the_same_model_may_move_and_is_read_no_second_time(config, monkeypatch):
    Path("model/README.md").write_text("the same model")
    Path("model/notes.md").write_text("new")
    with monkeypatch.context() as patch:
        patch.setattr(local_folder, "digest_file", lambda path: pytest.fail(f"read {path}"))
        open_run(config)
    os.utime("model/config.json")
    os.rename("model", "elsewhere")
    os.symlink("elsewhere", "model")
    open_run(config)


def test_a_complete_run_needs_its_model_no_more(config):
    run = find_run(Path("runs"), "run")
    with run.store.committing_folder("final") as folder:
        (folder / "model.safetensors").write_text("trained")
    digest = run.store.folder_digest("final")
    run.update(
        status="completed",
        final=FinalModel(
            path="final", sha256=digest, weights_sha256="", merged_path=None, merged_sha256=None
        ),
    )
    Path("model/model.safetensors").unlink()
    open_run(config)


def test_an_adapter_is_refused_with_the_way_to_a_model(tmp_path):
    (tmp_path / "adapter_config.json").write_text("{}")
    with refused(ModelError, "adapter", "merge_and_unload"):
        check_folder(tmp_path)


def test_a_run_directory_is_refused_with_the_folder_of_its_model(tmp_path):
    for name in ("final", "final-merged"):  # the latter beside the adapter in `final`
        (tmp_path / name).mkdir()
        with refused(ModelError, f"name {tmp_path / name}, the model of that run"):
            check_folder(tmp_path)


def test_the_parameters_are_those_of_the_files_that_are_loaded(tmp_path):
    for name in ("one", "two", "consolidated"):
        save_file({name: np.zeros((2, 3), np.float32)}, tmp_path / f"{name}.safetensors")
    (tmp_path / "training_args.bin").touch()
    index = {"weight_map": {"one": "one.safetensors", "two": "two.safetensors"}}
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps(index))
    assert count_parameters(tmp_path) == 12
    (tmp_path / "two.safetensors").unlink()
    assert count_parameters(tmp_path) == 0, "not all of them are here"
    save_file({"all": np.zeros(15, np.float32)}, tmp_path / "model.safetensors")
    (tmp_path / "pytorch_model.bin").touch()
    assert count_parameters(tmp_path) == 15
