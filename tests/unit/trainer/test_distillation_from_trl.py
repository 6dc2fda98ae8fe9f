"""What people hand to TRL's DistillationTrainer, and what becomes of it."""

import inspect
import re
import warnings
from functools import partial
from pathlib import Path

import pytest
import trl
from peft import LoraConfig
from transformers import AutoModelForCausalLM, BitsAndBytesConfig

import mortal
from mortal import DistillationTrainer, Distributed, SingleNode
from mortal_steps.config.trl_options import options_of
from mortal_steps.errors import ConfigError, ModelError, MortalError
from mortal_steps.models.local_folder import check_folder
from mortal_steps.plan.parts import Plan
from mortal_steps.policy.algorithms.base import algorithm_of
from mortal_steps.policy.algorithms.stepping.options import build_options
from tests.support.example_runs import tiny_model
from tests.support.refused import refused
from tests.support.trainer_config import value_at

PAGE = Path(__file__).parents[3] / "docs" / "python.md"
HEAD = "| given, where a teacher is learned from | outcome |"
CONFIG = partial(trl.DistillationConfig, bf16=False)  # TRL's default needs a GPU
ROWS = [{"prompt": "1+1="}]
ABOUT_THE_PROCESS = {
    *("output_dir", "logging_steps", "logging_strategy", "save_strategy", "eval_strategy"),
    *("report_to", "disable_tqdm", "use_cpu", "use_cache", "dataloader_pin_memory"),
    *("model_init_kwargs", "teacher_model_name_or_path", "max_steps", "do_eval"),
    "shuffle_dataset",  # data.shuffle, by which the batches are drawn
}
"""Options that decide no number of a step, or are decided elsewhere."""
GIVEN = {
    **{"DistillationConfig": CONFIG, "GRPOConfig": partial(trl.GRPOConfig, bf16=False)},
    **{"prompts": ROWS, "something": object(), "tokenizer": None, "LoraConfig": LoraConfig},
    **{"BitsAndBytesConfig": BitsAndBytesConfig, "SingleNode": SingleNode},
    "Distributed": Distributed,
}

pytestmark = pytest.mark.usefixtures("folder")


def rows_of_the_page():
    found = []
    lines = PAGE.read_text().split(HEAD)[1].split("\n\n")[0].splitlines()[2:]
    for line in lines:
        code, outcome, meant = (cell.strip() for cell in line.strip("|").split(" | ", 2))
        found.append(pytest.param(code.strip("`"), outcome, meant, id=code.strip("`")))
    return found


def trainer_of(args=None, **given):
    given = {"teacher_model": "org/teacher", "train_dataset": ROWS, **given}
    return DistillationTrainer("org/model", args=args, **given)


def config_of(args=None, **given):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return trainer_of(args, **given).config


@pytest.mark.parametrize(("code", "outcome", "meant"), rows_of_the_page())
def test_the_page_says_what_happens(code, outcome, meant):
    code = f"args={code}" if code.startswith("DistillationConfig(") else code
    given = eval(f"dict({code})", GIVEN)
    with warnings.catch_warnings(record=True) as heard:
        warnings.simplefilter("always")
        try:
            config = trainer_of(**given).config
        except MortalError as error:
            assert outcome == "refused", error
            return
    nothing = [one for one in heard if "changes nothing" in str(one.message)]
    assert outcome == ("changes nothing" if nothing else "taken")
    for key, value in re.findall(r"`([a-z_.]+) = ([^`]+)`", meant):
        assert value_at(config, key) == eval(value), key


def test_trls_own_arguments_are_all_answered_in_trls_order():
    ours = list(inspect.signature(DistillationTrainer).parameters)
    theirs = list(inspect.signature(trl.DistillationTrainer).parameters)
    assert ours[:6] == theirs[:6] and ours[5] == "processing_class"
    for name in {*theirs} - {*ours}:
        with refused(ConfigError, f"DistillationTrainer({name}=...): "):
            config_of(**{name: [object()]})


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"beta": 0.3, "temperature": 0.7, "max_completion_length": 16, "seed": 3},
        {"per_device_train_batch_size": 3, "gradient_accumulation_steps": 4, "optim": "adafactor"},
        {"disable_dropout": True, "lr_scheduler_type": "cosine", "warmup_steps": 2},
        {"chat_template_kwargs": {"a": 1}, "pad_to_multiple_of": 8, "max_grad_norm": 0.5},
    ],
    ids=str,
)
def test_what_trl_is_trained_with_is_what_was_given(options, tmp_path):
    args = CONFIG(**options)
    config = config_of(args)
    assert config.training.num_epochs == args.num_train_epochs
    assert config.training.rows == config.training.batch_size
    algorithm = algorithm_of(config.algorithm)
    built = build_options(Plan(config).trainer, algorithm, num_steps=8, output_dir=tmp_path)
    compared = set(options_of("DistillationConfig")) - ABOUT_THE_PROCESS
    different = {n for n in compared if getattr(built, n) != getattr(args, n)}
    # It says of the teacher what TRL leaves to transformers, and TRL is given none that ends a run.
    assert different <= {"teacher_model_init_kwargs"}
    assert built.teacher_model_init_kwargs["dtype"] == "auto"


def test_without_args_the_defaults_are_trls():
    ours, given = config_of(), config_of(CONFIG())
    assert ours.training.trl == {}, "on a GPU, TRL's autocast"
    same = given.training.model_copy(update={"trl": {}})
    assert (ours.training, ours.algorithm) == (same, given.algorithm)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"teacher_model": None}, ["teacher_model is None"]),
        ({"train_dataset": None}, ["train_dataset is None", "`prompt`"]),
        ({"config": {"algorithm.type": "grpo"}}, ["the class sets this key already"]),
        (
            {"config": {"algorithm.teacher.name_or_path": "other"}},
            ["the parameter teacher_model sets this key already ('org/teacher')"],
        ),
        ({"config": {"algorithm.teacher": "other"}}, ["use the parameter teacher_model instead"]),
        ({"eval_dataset": ROWS}, ["nothing scores them", "'evaluation.functions'"]),
        ({"mode": "single_node"}, ["mode = 'single_node'", "SingleNode("]),
        ({"runs_dir": ""}, ["DistillationTrainer: runs_dir = ''"]),
    ],
    ids=lambda each: next(iter(each)) if isinstance(each, dict) else "",
)
def test_what_cannot_be_meant_is_refused(given, said):
    with refused(ConfigError, *said):
        config_of(**given)


def test_a_teacher_that_is_an_object_is_saved_as_it_is(tmp_path):
    tiny_model(tmp_path)
    teacher = AutoModelForCausalLM.from_pretrained(tmp_path / "tiny")
    config = config_of(CONFIG(teacher_model_init_kwargs={}), teacher_model=teacher)
    found = config.algorithm.teacher_model
    check_folder(Path(found.name_or_path), called="teacher", whole=False)
    assert (Path(found.name_or_path) / "model.safetensors").exists()
    assert found.dtype == "float32"
    with refused(
        ModelError, "teacher_model has the dtype torch.float16", "torch.float32 or torch.bfloat16"
    ):
        config_of(teacher_model=teacher.half())
    with refused(ModelError, "teacher_model is of type object"):
        config_of(teacher_model=object())


def test_where_workers_do_not_take_turns_they_are_apart():
    assert config_of().compute.mode == config_of(backend="modal").compute.mode == "single_node"
    assert config_of(CONFIG(), backend="ray").compute.mode == "distributed"
    assert config_of(backend="racks:Rack").compute.mode == "distributed"
    with refused(ConfigError, "compute.backend", "'rays'"):
        config_of(backend="rays")


def test_it_is_trls_name():
    assert mortal.DistillationTrainer is DistillationTrainer
    explained = re.findall(r"^ {8}(\**\w+): ", DistillationTrainer.__doc__, re.MULTILINE)
    taken = list(inspect.signature(DistillationTrainer).parameters)
    assert sorted(explained) == sorted([*taken[:-1], "**others"])
