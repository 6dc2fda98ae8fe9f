"""What is written of a model is, byte for byte, what `save_pretrained` writes."""

import json
import stat

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import AutoConfig, AutoModelForCausalLM

from mortal_steps.policy.model_files import writing
from mortal_steps.policy.model_files.casting import cast_folder
from tests.support.parity.architectures import ARCHITECTURES, SHAPE


def model_of(family):
    config = AutoConfig.for_model(family, **{**SHAPE, "vocab_size": 40, **ARCHITECTURES[family]})
    return AutoModelForCausalLM.from_config(config)


def files_of(folder):
    return {path.name: path.read_bytes() for path in folder.iterdir()}


@pytest.mark.parametrize("family", sorted(ARCHITECTURES))
def test_a_written_model_has_the_files_that_save_pretrained_writes(family, tmp_path):
    model = model_of(family)
    model.save_pretrained(tmp_path / "published")
    model.save_pretrained(tmp_path / "own names", save_original_format=False)
    writing.save_model(model, tmp_path / "ours")
    assert files_of(tmp_path / "ours") == files_of(tmp_path / "published")
    writing.write_tensors(tmp_path / "ours", writing.published_tensors(model, own_names=True))
    assert files_of(tmp_path / "ours") == files_of(tmp_path / "own names")


@pytest.mark.parametrize("dtype", [None, torch.bfloat16])
def test_a_large_model_is_split_into_files_that_transformers_loads(tmp_path, monkeypatch, dtype):
    model = model_of("qwen3")
    monkeypatch.setattr(writing, "LARGEST_FILE", "5KB")
    writing.save_model(model, tmp_path, dtype)
    model.to(dtype or model.dtype)
    index = json.loads((tmp_path / "model.safetensors.index.json").read_text())
    assert index["metadata"]["total_size"] == sum(
        tensor.nbytes for tensor in writing.published_tensors(model).values()
    )
    assert len(list(tmp_path.glob("*.safetensors"))) > 1
    loaded = AutoModelForCausalLM.from_pretrained(tmp_path).state_dict()
    assert all(tensor.equal(loaded[name]) for name, tensor in model.state_dict().items())


def test_settings_are_written_beside_tensors_that_other_ranks_write(tmp_path, monkeypatch):
    model = model_of("qwen3")
    monkeypatch.setattr(writing, "LARGEST_FILE", "5KB")
    writing.save_model(model, tmp_path)
    written = files_of(tmp_path)
    writing.save_settings(model, tmp_path)
    assert files_of(tmp_path) == written


def test_others_may_read_what_is_written_as_they_may_any_new_file(tmp_path):
    writing.save_model(model_of("qwen3"), tmp_path)
    (usual := tmp_path / "usual").touch()
    modes = {path.name: stat.filemode(path.stat().st_mode) for path in tmp_path.iterdir()}
    assert set(modes.values()) == {stat.filemode(usual.stat().st_mode)}


def test_the_index_of_a_reference_model_is_its_own(tmp_path, monkeypatch):
    monkeypatch.setattr(writing, "LARGEST_FILE", "5KB")
    tensors = writing.published_tensors(model_of("qwen3"))
    names = ("model", "reference")
    for name in names:
        writing.write_tensors(tmp_path, tensors, name)
    for name in names:
        index = json.loads((tmp_path / f"{name}.safetensors.index.json").read_text())
        assert all(file.startswith(name) for file in index["weight_map"].values())


def test_a_folder_is_cast_without_a_change_of_the_file_that_it_was_linked_from(tmp_path):
    tensors = {"weight": torch.arange(2000.0), "steps": torch.arange(3000)}
    save_file(tensors, tmp_path / "source", metadata={"format": "pt"})
    before = (tmp_path / "source").read_bytes()
    (folder := tmp_path / "folder").mkdir()
    (folder / "model.safetensors").hardlink_to(tmp_path / "source")
    cast_folder(folder, "bfloat16")
    cast = load_file(folder / "model.safetensors")
    assert cast["weight"].equal(tensors["weight"].to(torch.bfloat16))
    assert cast["steps"].equal(tensors["steps"])
    assert (tmp_path / "source").read_bytes() == before
