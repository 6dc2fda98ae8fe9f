"""Cards that are too small for a run, and what is said of them."""

import json

import pytest

from mortal_steps.config import ModelConfig, RunConfig, TrainingConfig
from mortal_steps.errors import ConfigError
from mortal_steps.models.size import read_size
from mortal_steps.orchestration.resolve_defaults import resolve_defaults
from mortal_steps.orchestration.room_on_gpus import check_room
from tests.support.gpu_setups import LARGE, RTX, SMALL
from tests.support.made_up_gpus import SHAPES, let_there_be, several

WITH_LORA = {"use_lora": True}


@pytest.fixture(autouse=True)
def models(monkeypatch):
    monkeypatch.chdir(SHAPES)


def settled(name=SMALL, **tables):
    values = {"model": {"name_or_path": name}, "rollout": {"engine": "vllm"}} | tables
    return resolve_defaults(RunConfig.model_validate(values))


def test_a_card_without_room_for_the_optimizer_is_refused(monkeypatch):
    let_there_be(monkeypatch, several(2, "NVIDIA A100-SXM4-80GB", 79.2))
    with pytest.raises(ConfigError, match=r"GPU 0.*actor 114\.1.*training\.use_lora"):
        check_room(settled(LARGE))
    check_room(settled(LARGE, training=WITH_LORA))


def test_an_engine_without_room_for_its_weights_is_refused(monkeypatch):
    let_there_be(monkeypatch, several(1, *RTX))
    model = {"name_or_path": LARGE, "dtype": "bfloat16"}
    with pytest.raises(ConfigError, match=r"vllm gets 7\.0 GiB .* weights take 14\.2 GiB"):
        check_room(settled(model=model, training=WITH_LORA))


def test_a_sleeping_engine_and_gradients_take_the_memory_in_turn(monkeypatch):
    let_there_be(monkeypatch, several(1))
    options = {"engine": "vllm", "engine_options": {"gpu_memory_utilization": 0.7}}
    with pytest.raises(ConfigError, match="GPU 0"):
        check_room(settled(rollout=options))
    check_room(settled(rollout={**options, "sleep_while_training": True}))


@pytest.mark.parametrize(
    ("training", "model", "times_float32"),
    [
        ({}, {}, 4),
        ({"beta": 0.1}, {}, 5),
        ({"trl": {"optim": "sgd"}}, {}, 2),
        ({}, {"dtype": "bfloat16"}, 2),
        (WITH_LORA, {}, 1),
        (WITH_LORA, {"quantization": {"load_in_4bit": True}}, 1 / 8),
    ],
)
def test_what_training_takes_whatever_the_batch(training, model, times_float32):
    size = read_size(SHAPES / SMALL / "config.json")
    model = ModelConfig.model_validate({"dtype": "float32", **model})
    taken = size.training(model, TrainingConfig.model_validate(training))
    assert taken == times_float32 * 4 * size.parameters


def large_model(folder, **changes):
    """The name of a model of 7B whose weights are not here."""
    settings = json.loads((SHAPES / LARGE / "config.json").read_text()) | changes
    (folder / "config.json").write_text(json.dumps(settings))
    return str(folder)


def test_a_model_whose_size_is_a_guess_is_warned_of(monkeypatch, tmp_path, caplog):
    let_there_be(monkeypatch, several(2, *RTX))
    with pytest.raises(ConfigError, match="GPU 0"):
        check_room(settled(large_model(tmp_path)))
    check_room(settled(large_model(tmp_path, model_type="phi")))
    assert "GPU 0" in caplog.text and "a guess" in caplog.text


def test_embeddings_are_shared_unless_a_model_says_otherwise(tmp_path):
    def size(settings):
        (tmp_path / "config.json").write_text(json.dumps(settings))
        return read_size(tmp_path / "config.json").parameters

    said = json.loads((SHAPES / SMALL / "config.json").read_text())
    silent = {key: value for key, value in said.items() if key != "tie_word_embeddings"}
    assert size(silent) == size(said)
    assert size({"text_config": silent, "tie_word_embeddings": False}) > size(said)


@pytest.mark.parametrize(
    "changes",
    [
        {"intermediate_size": [4864, 4864]},
        {"num_attention_heads": 0},
        {"num_key_value_heads": "2"},
        {"hidden_size": 896.5},
        {"vocab_size": None},
    ],
)
def test_sizes_that_are_no_numbers_are_not_known(tmp_path, changes):
    assert read_size(SHAPES.parent / large_model(tmp_path, **changes) / "config.json") is None
