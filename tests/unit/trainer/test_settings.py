"""What parameters and objects become in the configuration."""

import datetime
import itertools
import json
from pathlib import Path

import numpy
import pandas
import pytest
import torch
from datasets import Dataset, DatasetDict
from PIL import Image
from transformers import AutoTokenizer, Qwen3ForCausalLM

from mortal import Distributed, GPUConfig, MortalTrainer, SingleNode
from mortal.rewards.functions import exact_match
from mortal.trainer.objects import datasets
from mortal_steps.data.problems import read_problems
from mortal_steps.errors import (
    ConfigError,
    DataError,
    ModelError,
    RewardError,
    RunNotFoundError,
)
from mortal_steps.orchestration.checking.data_lines import rows_in_words
from mortal_steps.schedule import num_train_steps
from mortal_steps.system.scratch import Scratch
from tests.support.example_runs import tiny_model
from tests.support.refused import refused
from tests.support.trainer_config import NEW, ROWS, config_of, scaled

pytestmark = pytest.mark.usefixtures("folder")


def test_parameters_are_keys():
    config = config_of(
        num_generations=8,
        learning_rate=1e-4,
        max_steps=3,
        loss_type="grpo",
        scale_rewards=False,
        use_lora=True,
        run_id="mine",
        config={**NEW, "rollout": {"staleness": 1}, "training.trl": {"warmup_steps": 3}},
    )
    training = config.training
    assert (training.num_generations, training.learning_rate, training.max_steps) == (8, 1e-4, 3)
    assert (training.loss_type, training.scale_rewards, training.use_lora) == ("grpo", "none", True)
    assert (config.run_id, config.rollout.staleness) == ("mine", 1)
    assert training.trl == {"warmup_steps": 3}


@pytest.mark.parametrize(
    ("mode", "expected"),
    [
        (Distributed(), ("distributed", None, 2, None)),
        (SingleNode(), ("single_node", "transformers", 1, None)),
        (SingleNode(use_vllm=True), ("single_node", "vllm", 1, None)),
        (
            Distributed(num_rollout_workers=3, weight_sync_method="volume"),
            ("distributed", None, 3, "volume"),
        ),
    ],
    ids=str,
)
def test_modes_are_keys(mode, expected):
    config = config_of(mode=mode)
    rollout = config.rollout
    found = (config.compute.mode, rollout.engine, config.num_rollout_workers, rollout.weight_sync)
    assert found == expected


def test_the_number_of_workers_is_left_to_the_gpus_unless_the_mode_names_it():
    assert config_of().rollout.num_rollout_workers is None
    assert config_of(mode=Distributed(num_rollout_workers=3)).rollout.num_rollout_workers == 3
    assert Distributed().containers() == "the actor on A100-80GB and 2 x A10G"


def test_vllm_on_a_gpu_of_its_own_is_what_the_configuration_calls_a_server():
    mode = SingleNode(gpu=GPUConfig("A100", count=2), use_vllm=True, vllm_mode="serve")
    modal = config_of(mode=mode).compute.modal
    assert (modal.gpu, modal.vllm_mode) == ("A100:2", "server")


@pytest.mark.parametrize(
    ("key", "parameter"),
    [
        ("training.max_steps", "the parameter max_steps"),
        ("data.source", "the parameter train_dataset"),
        ("compute.mode", "the parameter mode"),
    ],
)
def test_a_key_that_a_parameter_has_is_refused_with_both_names(key, parameter):
    with pytest.raises(ConfigError, match=rf"'{key}'.*{parameter}"):
        config_of(config={key: 1})


def test_an_unknown_key_is_refused_with_the_nearest_one():
    with refused(ConfigError, "rollout.staleness"):
        config_of(config={**NEW, "rollout.stalenes": 1})


def test_as_many_tokens_are_sampled_as_are_trained_on():
    assert config_of(max_completion_length=16).max_tokens == 16
    assert config_of(max_completion_length=16, max_tokens=40).max_tokens == 40


def test_without_a_dataset_it_is_programs_with_test_cases():
    data = config_of(train_dataset=None).data
    assert (data.source, data.config, data.max_samples) == (
        "OpenCoder-LLM/opc-sft-stage2",
        "educational_instruct",
        128,
    )


def test_a_reward_of_your_own_needs_a_dataset_to_score():
    with refused(ConfigError, "reward_funcs[1]", "train_dataset"):
        config_of(["sandbox", scaled(1.0)], train_dataset=None)


def test_rows_are_a_file_that_is_named_after_them():
    first, again = config_of().data.source, config_of(train_dataset=tuple(ROWS)).data.source
    assert first == again
    assert list(map(json.loads, Path(first).read_text().splitlines())) == ROWS
    assert config_of(train_dataset=ROWS[:1]).data.source != first


@pytest.mark.parametrize(
    ("dataset", "said"),
    [
        ([], "has no rows"),
        ((), "has no rows"),
        ((row for row in ()), "has no rows"),
        ({"validation": ROWS, "test": ROWS}, r"\(validation, test\) .*dataset\['validation'\]"),
        ({"prompt": ["1 + 1 ="]}, "several splits or columns"),
        (7, "of type int, which cannot be iterated over"),
        (["1 + 1 ="], "a row is a dict of columns"),
        ([{"prompt": "1", "answer": object()}], r"train_dataset\[0\]\['answer'\]"),
        ([{"prompt": "1", "answer": float("inf")}], r"train_dataset\[0\]\['answer'\]"),
        ([{"prompt": "1", "image": Image.new("1", (1, 1))}], "MORTAL trains on text alone"),
        ([{"prompt": [{"role": "user", "content": [Image.new("1", (1, 1))]}]}], "text alone"),
    ],
)
def test_what_is_no_dataset_is_refused(dataset, said):
    with pytest.raises(DataError, match=said):
        config_of(train_dataset=dataset)


def rows_of(dataset, **given):
    path = config_of(train_dataset=dataset, **given).data.source
    return list(map(json.loads, Path(path).read_text().splitlines()))


class Indexed:
    """As torch's datasets are: with a length and rows, but no iterator."""

    def __len__(self):
        return len(ROWS)

    def __getitem__(self, index):
        return ROWS[index]


def generated():
    yield from ROWS


TABLE = Dataset.from_list(ROWS)


@pytest.mark.parametrize(
    "dataset",
    [
        TABLE,
        TABLE.with_format("torch"),
        TABLE.with_format("pandas"),
        TABLE.to_iterable_dataset(),
        DatasetDict(test=TABLE.select([0]), train=TABLE),
        {"train": TABLE},
        pandas.DataFrame(ROWS),
        generated,
        generated(),
        Indexed(),
    ],
    ids=lambda dataset: type(dataset).__name__,
)
def test_the_same_rows_are_the_same_in_any_form(dataset):
    assert rows_of(dataset) == ROWS


@pytest.mark.parametrize("kind", [None, "numpy", "pandas"])
def test_columns_that_a_format_hides_are_hidden(kind):
    assert rows_of(TABLE.with_format(kind, columns=["prompt"])) == [
        {"prompt": row["prompt"]} for row in ROWS
    ]
    shown = TABLE.with_format(kind, columns=["prompt"], output_all_columns=True)
    assert rows_of(shown) == ROWS


def test_a_transform_of_the_users_own_is_kept():
    louder = TABLE.with_transform(lambda rows: {"prompt": [p + "!" for p in rows["prompt"]]})
    assert [row["prompt"] for row in rows_of(louder)] == ["1 + 1 =!", "1 + 2 =!"]


def test_of_rows_without_an_end_as_many_are_read_as_the_steps_take(monkeypatch):
    taken = []

    def endless():
        for number in itertools.count():
            taken.append(number)
            yield {"prompt": f"{number} + 1 =", "answer": str(number + 1)}

    rows = rows_of(endless, max_steps=3, batch_size=4)
    assert (len(rows), len(taken)) == (12, 12)
    monkeypatch.setattr(datasets, "MOST_ROWS", 50)
    with refused(DataError, "50 rows", "max_steps"):
        rows_of(endless)


def test_values_become_what_json_can_hold():
    row = {
        "prompt": "1",
        "day": datetime.date(2026, 3, 1),
        "at": pandas.Timestamp("2026-03-01 12:30"),
        "never": pandas.NaT,
        "missing": pandas.NA,
        "nan": float("nan"),
        "array": numpy.arange(3),
        "scalar": numpy.float32(0.5),
        "tensor": torch.tensor([[1, 2]]),
    }
    assert rows_of([row]) == [
        {
            "prompt": "1",
            "day": "2026-03-01",
            "at": "2026-03-01T12:30:00",
            "never": None,
            "missing": None,
            "nan": None,
            "array": [0, 1, 2],
            "scalar": 0.5,
            "tensor": [[1, 2]],
        }
    ]


def test_several_datasets_to_evaluate_on_have_names():
    data = config_of(eval_dataset={"easy": ROWS[:1], "hard": TABLE}).data
    assert list(data.eval_sets) == ["easy", "hard"]
    assert data.eval_source is None
    splits = DatasetDict(train=TABLE, test=TABLE)
    assert list(config_of(eval_dataset=splits).data.eval_sets) == ["train", "test"]
    with pytest.raises(ConfigError, match=r"data\.eval_sets"):
        config_of(eval_dataset={"too-easy": ROWS})


def test_rows_of_an_eval_dataset_are_trained_on_as_in_trl():
    assert config_of(eval_dataset=ROWS[:1]).data.exclude_held_out is False
    assert config_of(eval_dataset={"easy": ROWS}).data.exclude_held_out is False
    assert config_of(config={**NEW, "data.eval_samples": 1}).data.exclude_held_out is True
    asked = {**NEW, "data.exclude_held_out": True}
    assert config_of(eval_dataset=ROWS[:1], config=asked).data.exclude_held_out is True


@pytest.mark.parametrize("num_held_out", [81, 60])
def test_a_script_trains_on_as_many_rows_as_in_trl(num_held_out):
    rows = [{"prompt": f"{a}+{b}=", "answer": str(a + b)} for a in range(9) for b in range(9)]
    config = config_of(
        train_dataset=rows, eval_dataset=rows[:num_held_out], num_epochs=1, batch_size=9
    )
    found = read_problems(config.data, config.seed, Scratch())
    assert num_train_steps(len(found.train), config.training) == 9  # those of stock TRL
    assert rows_in_words(config.data, found) == (
        f"81 rows: 81 to train on, {num_held_out} of them with a prompt that is held out, too "
        f"(data.exclude_held_out = false); {num_held_out} held out (eval_dataset)"
    )


def test_evaluation_comes_with_its_dataset():
    config = config_of(eval_dataset=ROWS[:1])
    assert config.data.eval_source.endswith(".jsonl")
    assert config.evaluation.eval_steps == 100
    asked = config_of(eval_dataset=ROWS[:1], config={**NEW, "evaluation.eval_steps": 7})
    assert asked.evaluation.eval_steps == 7


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"reward": []}, ["reward_funcs"]),
        ({"reward": [exact_match], "reward_weights": [1, 2]}, ["2 numbers", "1 reward_funcs"]),
        ({"reward": [7]}, ["reward_funcs[0]", "int"]),
        ({"reward": "correct"}, ["'correct'", "path/file.py:function"]),
        ({"reward": 7}, ["reward_funcs", "int"]),
        ({"reward_weights": 1.0}, ["reward_weights = 1.0", "list"]),
        ({"mode": "single_node"}, ["SingleNode("]),
        ({"runs_dir": None}, ["runs_dir = None", "folder"]),
        ({"runs_dir": ""}, ["runs_dir = ''", "folder"]),
        ({"config": [1]}, ["config = [1]", "keys"]),
    ],
    ids="-".join,
)
def test_what_cannot_be_meant_is_refused(given, said, folder):
    with refused((ConfigError, RewardError), *said):
        config_of(**given)
    assert list(folder.iterdir()) == []


@pytest.mark.parametrize(
    ("gpu", "said"),
    [
        (lambda: SingleNode(gpu=None), r"None: write a GPU's name"),
        (lambda: GPUConfig("A100", 2.0), r"write GPUConfig\('A100-80GB', count=2\)"),
        (lambda: GPUConfig("A100:2", 2), r"write GPUConfig\('A100-80GB', count=2\)"),
    ],
    ids=["none", "fraction", "twice"],
)
def test_what_is_no_gpu_is_refused(gpu, said):
    with pytest.raises(ConfigError, match=said):
        gpu()


def test_what_is_no_tokenizer_is_refused():
    with refused(ModelError, "processing_class", "str", "tokenizer"):
        config_of(processing_class="model")


def test_a_tokenizer_is_the_models_own_after_it_was_used(folder):
    tiny_model(folder)
    used = AutoTokenizer.from_pretrained("tiny", padding_side="left", truncation_side="left")
    used.pad_token = used.convert_ids_to_tokens(5)
    used(["a b c", "a"], padding=True, truncation=True, max_length=2)
    before = used.backend_tokenizer.to_str()
    config_of(config=None, model="tiny", processing_class=used)
    assert used.backend_tokenizer.to_str() == before
    used.add_tokens(["<another>"])
    with pytest.raises(ModelError, match="not the tokenizer of"):
        config_of(config=None, model="tiny", processing_class=used)


def test_a_trainer_without_a_run_says_so():
    trainer = MortalTrainer(reward_funcs=scaled(1.0), train_dataset=ROWS)
    with refused(RunNotFoundError, "train()"):
        trainer.evaluate()
    with pytest.raises(ConfigError, match="resume=7"):
        trainer.train(resume=7)
    with refused(RunNotFoundError, "'grpo'"):
        trainer.train(resume=True)


def test_options_in_a_table_are_left_as_they_were_given():
    options = {"warmup_steps": 3}
    config = config_of(config={**NEW, "training.trl": options, "training.trl.max_grad_norm": 2.0})
    assert config.training.trl == {"warmup_steps": 3, "max_grad_norm": 2.0}
    assert options == {"warmup_steps": 3}


class OwnModel(Qwen3ForCausalLM):
    """A model with code of its own, as `model=` takes an object."""


def test_a_model_of_a_class_of_ones_own_is_refused_with_what_to_do(tmp_path):
    tiny_model(tmp_path)
    own = OwnModel.from_pretrained(tmp_path / "tiny")
    with refused(ModelError, "OwnModel", "register_for_auto_class"):
        config_of(model=own, config={})
    own._auto_class = "AutoModelForCausalLM"  # as register_for_auto_class does
    assert config_of(model=own, config={}).model.name_or_path
