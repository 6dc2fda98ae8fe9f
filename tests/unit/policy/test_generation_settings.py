"""The generation settings that a model comes with are those that it is saved with."""

import json

import pytest
from transformers import AutoModelForCausalLM, GenerationConfig, Qwen2Config, Qwen2ForCausalLM

from mortal_steps.policy.model_files.writing import save_model
from tests.support.smallest import SMALLEST

SETTINGS = {
    "plain": {"eos_token_id": [1, 3], "do_sample": True, "top_k": 20, "temperature": 0.6},
    "at odds": {"eos_token_id": 1, "temperature": 0.6, "top_p": 0.9},
    "greedy": {"eos_token_id": 1, "do_sample": False, "temperature": 0.0},
}


@pytest.mark.parametrize("which", SETTINGS)
def test_they_are_saved_as_they_are_read(which, tmp_path):
    Qwen2ForCausalLM(Qwen2Config(**SMALLEST)).save_pretrained(tmp_path / "base")
    (tmp_path / "base/generation_config.json").write_text(json.dumps(SETTINGS[which]))
    model = AutoModelForCausalLM.from_pretrained(tmp_path / "base")
    held = model.generation_config
    (tmp_path / "saved").mkdir()
    save_model(model, tmp_path / "saved")
    written = json.loads((tmp_path / "saved/generation_config.json").read_text())
    assert written.items() >= SETTINGS[which].items()
    assert model.generation_config is held
    again = GenerationConfig.from_pretrained(tmp_path / "saved").to_diff_dict()
    assert again == held.to_diff_dict()
