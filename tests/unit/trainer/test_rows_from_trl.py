"""What people hand to TRL's trainers that learn from rows, and what becomes of it."""

import inspect
import json
import re
import warnings
from functools import partial
from pathlib import Path

import pytest
import torch
import trl
from datasets import Dataset
from peft import LoraConfig
from transformers import (
    AutoModelForSequenceClassification,
    AutoTokenizer,
    BitsAndBytesConfig,
    Qwen3ForCausalLM,
)

import mortal
from mortal import Distributed, SingleNode
from mortal_steps.config.trl_options import CONFIGS_OF_ROWS, options_of
from mortal_steps.errors import ConfigError, DataError, ModelError, MortalError, RunNotFoundError
from mortal_steps.plan.parts import Plan
from mortal_steps.policy.algorithms.base import algorithm_of
from mortal_steps.policy.algorithms.stepping.options import build_options
from tests.support.example_runs import tiny_model
from tests.support.refused import refused
from tests.support.trainer_config import value_at

PAGE = Path(__file__).parents[3] / "docs" / "python.md"
HEAD = "| given, where rows are learned | outcome |"
ABOUT_THE_PROCESS = {
    *("output_dir", "logging_steps", "logging_strategy", "save_strategy", "eval_strategy"),
    *("report_to", "disable_tqdm", "use_cpu", "use_cache", "dataloader_pin_memory"),
    *("model_init_kwargs", "max_steps", "do_eval"),
}
"""Options that decide no number, or are decided elsewhere."""
CONFIGS = {name: partial(getattr(trl, name), bf16=False) for name in CONFIGS_OF_ROWS.values()}
TRAINERS = [name.replace("Config", "Trainer") for name in CONFIGS]
ROWS = [{"prompt": "1+1=", "completion": "2", "label": True}]

pytestmark = pytest.mark.usefixtures("folder")


@pytest.fixture
def given():
    """What the page's examples name."""
    return {
        **CONFIGS,
        "GRPOConfig": partial(trl.GRPOConfig, bf16=False),
        "rows": ROWS,
        "stream": Dataset.from_list(ROWS).to_iterable_dataset(),
        "something": object(),
        "as_text": lambda row: "1+1=2",
        "tokenizer": None,
        "LoraConfig": LoraConfig,
        "BitsAndBytesConfig": BitsAndBytesConfig,
        "SingleNode": SingleNode,
    }


def rows_of_the_page():
    found = []
    lines = PAGE.read_text().split(HEAD)[1].split("\n\n")[0].splitlines()[2:]
    for line in lines:
        code, outcome, meant = (cell.strip() for cell in line.strip("|").split(" | ", 2))
        found.append(pytest.param(code.strip("`"), outcome, meant, id=code.strip("`")))
    return found


def config_of(trainer="SFTTrainer", model="org/model", **given):
    given = {"train_dataset": [{"text": "1+1=2"}], **given}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return getattr(mortal, trainer)(model, **given).config


@pytest.mark.parametrize(("code", "outcome", "meant"), rows_of_the_page())
def test_the_page_says_what_happens(code, outcome, meant, given):
    named = code.partition("(")[0]
    trainer = named.replace("Config", "Trainer") if named in CONFIGS else "SFTTrainer"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)  # of TRL's own options
        asked = eval(f"dict({'args=' if named in CONFIGS else ''}{code})", given)
    asked = {"train_dataset": [{"text": "a"}], **asked}
    with warnings.catch_warnings(record=True) as heard:
        warnings.simplefilter("always")
        try:
            config = getattr(mortal, trainer)("org/model", **asked).config
        except MortalError as error:
            assert outcome == "refused", error
            return
    nothing = [one for one in heard if "changes nothing" in str(one.message)]
    assert outcome == ("changes nothing" if nothing else "taken")
    for key, value in re.findall(r"`([a-z_.]+) = ([^`]+)`", meant):
        assert value_at(config, key) == eval(value), key


@pytest.mark.parametrize("trainer", TRAINERS)
def test_trls_own_arguments_are_all_answered_in_trls_order(trainer):
    ours = list(inspect.signature(getattr(mortal, trainer)).parameters)
    theirs = list(inspect.signature(getattr(trl, trainer)).parameters)
    positional = [name for name in ours if name in theirs][: theirs.index("processing_class") + 1]
    assert positional == theirs[: theirs.index("processing_class") + 1]
    taken = {*ours, "formatting_func", "quantization_config"}
    for name in {*theirs} - taken:
        with refused(ConfigError, f"{trainer}({name}=...): "):
            config_of(trainer, **{name: [object()]})


@pytest.mark.parametrize(
    ("kind", "options"),
    [
        ("sft", {}),
        ("sft", {"packing": True, "max_length": 64, "seed": 3, "label_smoothing_factor": 0.1}),
        ("sft", {"loss_type": "dft", "shuffle_dataset": True, "optim": "adafactor"}),
        ("sft", {"max_length": None, "padding_free": True, "per_device_eval_batch_size": 3}),
        ("dpo", {}),
        ("dpo", {"loss_type": ["sigmoid_norm", "sft"], "beta": 0.3, "sync_ref_model": True}),
        ("dpo", {"gradient_accumulation_steps": 4, "per_device_train_batch_size": 3}),
        ("kto", {}),
        ("kto", {"desirable_weight": 1.3, "undesirable_weight": 0.7, "disable_dropout": False}),
        ("reward", {}),
        ("reward", {"center_rewards_coefficient": 0.1, "accelerator_config": {"even_batches": 0}}),
    ],
    ids=str,
)
def test_what_trl_is_trained_with_is_what_was_given(kind, options, tmp_path):
    made = CONFIGS_OF_ROWS[kind]
    args = CONFIGS[made](**options)
    config = config_of(made.replace("Config", "Trainer"), args=args)
    assert config.training.num_epochs == args.num_train_epochs
    algorithm = algorithm_of(config.algorithm)
    built = build_options(Plan(config).trainer, algorithm, num_steps=8, output_dir=tmp_path)
    compared = {name for name in options_of(made) if name not in ABOUT_THE_PROCESS}
    assert {n for n in compared if getattr(built, n) != getattr(args, n)} == set()


@pytest.mark.parametrize("trainer", TRAINERS)
def test_without_args_the_defaults_are_trls(trainer):
    args = CONFIGS[trainer.replace("Trainer", "Config")]()
    ours, given = config_of(trainer), config_of(trainer, args=args)
    assert ours.training.trl == {}, "on a GPU, TRL's autocast"
    same = given.training.model_copy(update={"trl": {}})
    assert (ours.training, ours.algorithm) == (same, given.algorithm)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"callbacks": [1]}, ["SFTTrainer(callbacks=...)", "tracker"]),
        ({"learning_rate": 1.0}, ["SFTConfig(...)", "{'training.learning_rate': 1.0}"]),
        ({"beta": 1.0}, ["neither mortal's nor TRL's SFTTrainer and SFTConfig have it"]),
        ({"config": {"algorithm.type": "dpo"}}, ["the class sets this key already ('sft')"]),
        ({"config": {"data.source": "a"}}, ["use the parameter train_dataset"]),
        ({"config": [1]}, ["SFTTrainer: config = [1]"]),
        ({"runs_dir": ""}, ["SFTTrainer: runs_dir = ''"]),
        ({"mode": "single_node"}, ["SFTTrainer: mode = 'single_node'", "SingleNode("]),
        ({"mode": Distributed(weight_sync_method="volume")}, ["rollout.weight_sync = 'volume'"]),
        ({"train_dataset": None}, ["train_dataset is None"]),
    ],
    ids=lambda each: next(iter(each)) if isinstance(each, dict) else "",
)
def test_what_cannot_be_meant_is_refused(given, said):
    with refused(ConfigError, *said):
        config_of(**given)


def test_each_mode_says_where_the_actor_is():
    assert config_of().compute.mode == "single_node"
    assert config_of(backend="ray").compute.mode == "distributed", "it has none other"
    apart = config_of(mode=Distributed(actor="H100", rollout="L4"))
    assert (apart.compute.mode, apart.compute.modal.actor) == ("distributed", "H100")
    assert apart.rollout == config_of().rollout


def test_rows_are_formatted_as_trl_does_it():
    def as_text(row):
        return f"{row['question']}?"

    question = [{"question": "why"}]
    data = config_of(
        train_dataset=question, eval_dataset={"some": question}, formatting_func=as_text
    ).data
    for path in (data.source, data.eval_sets["some"]):
        assert json.loads(Path(path).read_text()) == {"question": "why", "text": "why?"}


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"train_dataset": ROWS}, ["completion_only_loss=False"]),
        ({"train_dataset": [{"input_ids": [1]}]}, ["hold tokens"]),
        ({"train_dataset": [{"a": 1}], "formatting_func": len}, ["returned a int"]),
        ({"train_dataset": "org/rows"}, ["train_dataset = 'org/rows' is a name"]),
    ],
)
def test_rows_that_cannot_be_formatted_are_refused(given, said):
    with refused((ConfigError, DataError), *said):
        config_of(**{"formatting_func": str, **given})


def test_as_many_rows_are_read_as_the_steps_take_unless_they_are_packed():
    def endless():
        while True:
            yield {"text": "a"}

    args = CONFIGS["SFTConfig"](max_steps=3, per_device_train_batch_size=2)
    path = config_of(args=args, train_dataset=endless).data.source
    assert len(Path(path).read_text().splitlines()) == 6


def test_a_trainer_without_a_run_says_so():
    trainer = mortal.KTOTrainer("org/model", train_dataset=ROWS)
    with refused(RunNotFoundError, "KTOTrainer(run_id=...)"):
        trainer.evaluate()
    with refused(RunNotFoundError, "no run named 'kto'"):
        trainer.train(resume=True)
    with refused(ConfigError, "evaluate(eval_dataset=...)"):
        trainer.evaluate(eval_dataset=ROWS)
    assert trainer.accelerator.is_main_process and trainer.hub_model_id is None


class TestModels:
    @pytest.fixture
    def tiny(self, folder):
        tiny_model(folder)
        return folder / "tiny"

    def test_another_padding_is_an_option(self, tiny):
        tokenizer = AutoTokenizer.from_pretrained(tiny)
        assert tokenizer.pad_token != tokenizer.eos_token
        assert config_of(model=tiny, processing_class=tokenizer).training.trl == {}
        tokenizer.pad_token = tokenizer.eos_token
        given = {"model": tiny, "processing_class": tokenizer}
        for trainer in TRAINERS:
            takes = "pad_token" in options_of(trainer.replace("Trainer", "Config"))
            options = {"pad_token": tokenizer.eos_token} if takes else {}
            assert config_of(trainer, **given).training.trl == options

    def test_what_a_saved_model_does_not_say_is_kept(self, tiny):
        eager = Qwen3ForCausalLM.from_pretrained(tiny, attn_implementation="eager")
        options = config_of(model=eager).training.trl["model_init_kwargs"]
        assert options == {"attn_implementation": "eager"}
        assert config_of(model=Qwen3ForCausalLM.from_pretrained(tiny)).training.trl == {}

    def test_a_model_object_is_not_quantized(self, tiny):
        model = Qwen3ForCausalLM.from_pretrained(tiny)
        given = {"quantization_config": BitsAndBytesConfig(load_in_4bit=True)}
        with refused(ModelError, "quantization_config beside a model object"):
            config_of(model=model, peft_config=LoraConfig(), **given)
        model.is_quantized = True
        with refused(ModelError, "model is quantized"):
            config_of(model=model, peft_config=LoraConfig())

    def test_frozen_weights_need_an_adapter(self, tiny):
        model = Qwen3ForCausalLM.from_pretrained(tiny)
        model.get_input_embeddings().requires_grad_(False)
        for trainer in ("SFTTrainer", "MortalTrainer"):
            with refused(
                ModelError, "1 weights of model are frozen", "embed_tokens", "peft_config"
            ):
                config_of(trainer, model=model)
        assert config_of(model=model, peft_config=LoraConfig()).training.use_lora

    def test_a_reward_model_has_one_label(self, tiny):
        def classifier(labels):
            kind = AutoModelForSequenceClassification
            return kind.from_pretrained(tiny, num_labels=labels)

        assert config_of("RewardTrainer", model=classifier(1)).model.dtype == "float32"
        with refused(ModelError, "num_labels = 2"):
            config_of("RewardTrainer", model=classifier(2))
        with refused(ModelError, "Qwen3ForCausalLM with num_labels = 2"):
            config_of("RewardTrainer", model=Qwen3ForCausalLM.from_pretrained(tiny))
        with refused(ModelError, "writes no text", "SFTTrainer"):
            config_of(model=classifier(1))

    def test_a_reference_is_the_model_itself(self, tiny):
        model, reference = (Qwen3ForCausalLM.from_pretrained(tiny) for _ in range(2))
        given = {"model": model, "ref_model": reference}
        assert config_of("DPOTrainer", **given) == config_of("DPOTrainer", model=model)
        with refused(ModelError, "ref_model beside peft_config"):
            config_of("DPOTrainer", **given, peft_config=LoraConfig())
        with refused(ModelError, "give model as an object, too"):
            config_of("KTOTrainer", model=tiny, ref_model=reference)
        with torch.no_grad():
            reference.get_input_embeddings().weight[0, 0] += 1
        with refused(ModelError, "ref_model is another model than model"):
            config_of("DPOTrainer", **given)


@pytest.mark.parametrize("name", ["SFTTrainer", "DPOTrainer", "MyTrainer"])
def test_a_warning_names_the_line_of_the_script(tmp_path, monkeypatch, name):
    monkeypatch.chdir(tmp_path)

    class MyTrainer(mortal.DPOTrainer):
        def __init__(self, **given):
            super().__init__(**given)

    kind = MyTrainer if name == "MyTrainer" else getattr(mortal, name)
    config = trl.SFTConfig if name == "SFTTrainer" else trl.DPOConfig
    rows = [{"text": "a"}] if name == "SFTTrainer" else [{"chosen": "ab", "rejected": "ac"}]
    tiny_model(tmp_path)
    args = config(output_dir="out", use_cpu=True, report_to="none")
    with pytest.warns(UserWarning, match="use_cpu changes nothing") as told:
        kind(model="tiny", args=args, train_dataset=rows)
    assert {each.filename for each in told if "use_cpu" in str(each.message)} == {__file__}
