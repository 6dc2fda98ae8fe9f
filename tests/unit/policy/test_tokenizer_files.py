"""A trained model's tokenizer pads where the tokenizer of the model that was trained does."""

import json

import pytest

from mortal_steps.config import NewModelConfig
from mortal_steps.policy.model_files.tokenizer import SIDES, load_tokenizer, save_tokenizer
from mortal_steps.policy.starting_model.new_model import build_model

FILE = "tokenizer_config.json"


@pytest.mark.parametrize(
    "own", [{}, {"padding_side": "right"}, {"padding_side": "left", "truncation_side": "right"}]
)
def test_the_sides_of_the_model_are_saved(tmp_path, own):
    build_model(tmp_path / "model", NewModelConfig(hidden_size=32, num_layers=1), seed=0)
    file = tmp_path / "model" / FILE
    settings = json.loads(file.read_text())
    for side in SIDES:
        settings.pop(side, None)
    file.write_text(json.dumps({**settings, **own}))
    tokenizer = load_tokenizer(str(tmp_path / "model"), trust_remote_code=False)
    save_tokenizer(tokenizer, tmp_path / "final")
    saved = json.loads((tmp_path / "final" / FILE).read_text())
    assert {side: saved[side] for side in SIDES if side in saved} == own
    assert [getattr(tokenizer, side) for side in SIDES] == ["left", "left"], "training goes on"
    padded = tokenizer(["ab", "abcd"], padding=True)
    assert padded["attention_mask"][0] == [0, 0, 1, 1]
