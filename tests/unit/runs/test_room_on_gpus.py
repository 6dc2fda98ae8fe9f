"""Cards that are too small for a run, and what is said of them."""

import json
import re

import pytest

from mortal_steps.errors import ConfigError
from mortal_steps.models.shape import read_shape
from mortal_steps.orchestration.checking.forecast import forecast
from mortal_steps.orchestration.checking.resolve_defaults import resolve_defaults
from mortal_steps.orchestration.checking.room_on_gpus import warnings_of
from mortal_steps.orchestration.trials.opening import forecast_plan
from mortal_steps.plan.loader import override_config
from mortal_steps.plan.run_config import RunConfig
from tests.support.gpu_setups import LARGE, PROMPT, RTX, SMALL
from tests.support.made_up_gpus import SHAPES, let_there_be, several
from tests.support.refused import refused

MANY_ROWS = {"batch_size": 16, "num_generations": 4, "gradient_accumulation_steps": 1}


@pytest.fixture(autouse=True)
def models(monkeypatch):
    monkeypatch.chdir(SHAPES)


def settled(name=SMALL, **tables):
    values = {"model": {"name_or_path": name}, "rollout": {"engine": "vllm"}} | tables
    return resolve_defaults(RunConfig.model_validate(values))


def forecast_of(config):
    return forecast(forecast_plan(config), PROMPT)


def warnings(config):
    return warnings_of(forecast_of(config))


def test_each_setting_that_is_named_fits(monkeypatch):
    let_there_be(monkeypatch, several(1, *RTX))
    config = settled(training=MANY_ROWS)
    (warning,) = warnings(config)
    assert warning.startswith(
        "GPU 0, NVIDIA GeForce RTX 4090, 23.5 GiB: the longest batch may take"
    )
    *settings, larger = warning.partition("What fits: ")[2].split("; or ")
    assert larger.startswith("a GPU with ")
    assert [setting.partition(" = ")[0] for setting in settings] == [
        "rollout.sleep_while_training",
        "training.gradient_accumulation_steps",
        "training.max_completion_length",
        "training.use_lora",
    ]
    assert "training.gradient_accumulation_steps = 4" in settings, "the nearest, and no other"
    for setting in settings:
        changed = override_config(config, re.sub(r" = (\S+)", r"=\1", setting).split(" with "))
        assert not warnings(changed), setting


def test_a_card_without_room_for_the_optimizer_is_refused(monkeypatch):
    let_there_be(monkeypatch, several(2, "NVIDIA A100-SXM4-80GB", 79.2))
    with refused(ConfigError, "GPU 0", "113.5 GiB", "training.use_lora"):
        warnings(settled(LARGE))
    lora = {"training": {"use_lora": True}}
    assert not warnings(settled(LARGE, **lora))


def test_an_engine_without_room_for_its_weights_is_refused(monkeypatch):
    let_there_be(monkeypatch, several(1, *RTX))
    lora = {"training": {"use_lora": True}}
    model = {"name_or_path": LARGE, "dtype": "bfloat16"}
    with refused(ConfigError, "7.0 GiB", "14.2 GiB"):
        warnings(settled(model=model, **lora))


def test_an_engine_without_room_for_one_sequence_is_warned_of(monkeypatch):
    let_there_be(monkeypatch, several(1, *RTX))
    rollout = {"engine": "vllm", "engine_options": {"gpu_memory_utilization": 0.107}}
    told = warnings(settled(rollout=rollout))
    assert "does not start without room for one sequence of 16,384" in told[0]
    shorter = settled(rollout=rollout, model={"name_or_path": SMALL, "max_model_len": 2048})
    assert not any("does not start" in each for each in warnings(shorter))


def test_an_engine_that_would_preempt_is_warned_of(monkeypatch):
    let_there_be(monkeypatch, several(2, *RTX))
    lora = {"use_lora": True, "batch_size": 32, "num_generations": 8}
    model = {"name_or_path": LARGE, "dtype": "bfloat16"}
    (warning,) = warnings(settled(model=model, training=lora))
    assert warning.startswith("GPU 1, ") and "room for 94 of the 256 sequences" in warning
    assert "max_num_seqs = 94" in warning
    rollout = {"engine": "vllm", "engine_options": {"max_num_seqs": 94}}
    assert not warnings(settled(model=model, training=lora, rollout=rollout))


def test_only_an_engine_that_preempts_is_said_to(monkeypatch):
    let_there_be(monkeypatch, several(2, *RTX))
    training = {"batch_size": 64, "num_generations": 8, "max_completion_length": 8192}
    tables = {"training": training | {"use_lora": True}}
    assert "preempts" in " ".join(warnings(settled(**tables)))
    found = warnings(settled(**tables, rollout={"engine": "transformers"}))
    assert found and "preempts" not in " ".join(found)


def test_the_rows_of_an_engine_are_those_of_whole_groups(monkeypatch):
    let_there_be(monkeypatch, several(2))
    training = {"batch_size": 3, "num_generations": 4}
    halves = settled(training=training, rollout={"engine": "transformers", "num_shards": 2})
    found = forecast_of(halves)
    whole = settled(
        training=training | {"batch_size": 2}, rollout={"engine": "transformers", "num_shards": 1}
    )
    assert found.cards()[1].engines == forecast_of(whole).cards()[1].engines


def test_an_option_in_words_is_left_to_the_engine(monkeypatch):
    let_there_be(monkeypatch, several(1, *RTX))
    options = {"max_model_len": "8k", "max_num_seqs": "64"}
    assert not warnings(settled(rollout={"engine": "vllm", "engine_options": options}))


@pytest.mark.parametrize(
    ("optim", "share"),
    [
        ("adamw_torch", 1),
        ("adamw_8bit", 0.25),
        ("adamw_torch_4bit", 0.125),
        ("paged_adamw_32bit", 0),
        ("lion_32bit", 0.5),
        ("lion_8bit", 0.125),
        ("rmsprop", 0.5),
        ("adagrad", 0.5),
        ("galore_adamw_8bit", 0),
        ("lomo", 0),
        ("sgd", 0),
    ],
)
def test_what_the_optimizer_keeps_is_counted(monkeypatch, optim, share):
    let_there_be(monkeypatch, several(1, *RTX))
    usual, chosen = (
        forecast_of(settled(training={"trl": trl})).cards()[0].training.optimizer
        for trl in ({}, {"optim": optim})
    )
    assert chosen == usual * share


def test_a_sleeping_engine_and_training_need_memory_in_turn(monkeypatch):
    let_there_be(monkeypatch, several(1, *RTX))
    awake, asleep = (
        forecast_of(settled(rollout={"engine": "vllm", "sleep_while_training": sleeps}))
        for sleeps in (False, True)
    )
    assert asleep.cards()[0].most < awake.cards()[0].most


def test_a_batch_that_does_not_fit_beside_an_engine_is_no_reason_to_refuse(monkeypatch):
    let_there_be(monkeypatch, several(1))
    training = {"batch_size": 32, "num_generations": 8, "max_completion_length": 4096}
    config = settled(training=training, rollout={"engine": "transformers", "num_shards": 1})
    (warning,) = warnings(config)
    assert "the longest batch may take" in warning
    shards = re.search(r"rollout\.num_shards = (\d+)", warning)
    assert not warnings(override_config(config, [f"rollout.num_shards={shards[1]}"]))


def large_model(folder, **changes):
    """The name of a model of 7B whose weights are not here."""
    settings = json.loads((SHAPES / LARGE / "config.json").read_text()) | changes
    (folder / "config.json").write_text(json.dumps(settings))
    return str(folder)


def test_a_model_whose_size_is_a_guess_is_warned_of(monkeypatch, tmp_path):
    let_there_be(monkeypatch, several(2, *RTX))
    with pytest.raises(ConfigError, match="GPU 0"):
        warnings(settled(large_model(tmp_path)))
    told = warnings(settled(large_model(tmp_path, model_type="phi")))
    assert "GPU 0" in told[0] and "This is a guess" in told[0]


def test_embeddings_are_shared_unless_a_model_says_otherwise(tmp_path):
    def size(settings):
        (tmp_path / "config.json").write_text(json.dumps(settings))
        return read_shape(tmp_path / "config.json").parameters

    said = json.loads((SHAPES / SMALL / "config.json").read_text())
    silent = {key: value for key, value in said.items() if key != "tie_word_embeddings"}
    assert size(silent) == size(said)
    assert size({"text_config": silent, "tie_word_embeddings": False}) > size(said)


@pytest.mark.parametrize(
    "changes",
    [
        {"intermediate_size": [4864, 4864]},
        {"num_experts": 4, "num_experts_per_tok": [2, 4]},
        {"num_attention_heads": 0},
        {"num_key_value_heads": "2"},
        {"hidden_size": 896.0},
    ],
)
def test_sizes_that_are_no_numbers_are_not_known(monkeypatch, tmp_path, changes):
    let_there_be(monkeypatch, several(1, *RTX))
    (warning,) = warnings(settled(large_model(tmp_path, **changes)))
    assert "not known" in warning


def test_a_model_of_unknown_sizes_is_warned_of(monkeypatch, tmp_path):
    let_there_be(monkeypatch, several(1))
    (tmp_path / "config.json").write_text('{"n_embd": 768}')
    (warning,) = warnings(settled(str(tmp_path)))
    assert "not known" in warning
