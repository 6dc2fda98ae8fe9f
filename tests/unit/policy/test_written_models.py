"""What is written of a model is, byte for byte, what `save_pretrained` writes."""

import pytest
from transformers import AutoConfig, AutoModelForCausalLM

from mortal_steps.policy.model_files import writing
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


def test_a_large_model_is_split_into_files_that_transformers_loads(tmp_path, monkeypatch):
    model = model_of("qwen3")
    monkeypatch.setattr(writing, "LARGEST_FILE", "5KB")
    writing.save_model(model, tmp_path)
    assert len(list(tmp_path.glob("*.safetensors"))) > 1
    loaded = AutoModelForCausalLM.from_pretrained(tmp_path).state_dict()
    assert all(tensor.equal(loaded[name]) for name, tensor in model.state_dict().items())
