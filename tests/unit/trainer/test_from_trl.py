"""What people hand to TRL's GRPOTrainer, and what becomes of it."""

import inspect
import re
import warnings
from functools import partial
from pathlib import Path

import pytest
import torch
import trl
from peft import LoraConfig
from transformers import BitsAndBytesConfig
from trl import GRPOConfig, RLOOConfig, SFTConfig

from mortal import Distributed, MortalTrainer, SingleNode
from mortal.trainer.from_trl import repository
from mortal.trainer.metrics_table import MetricsTable
from mortal.trainer.trl_names import IN_ARGS, OTHER, SAME, SPECIAL
from mortal_steps.config.trl_options import idleness, options_of, refusal
from mortal_steps.errors import ConfigError, MortalError
from mortal_steps.plan.parts import Plan
from mortal_steps.policy.algorithms import grpo
from mortal_steps.policy.algorithms.stepping.options import build_options
from tests.support.refused import refused
from tests.support.trainer_config import ROWS, value_at

PAGE = Path(__file__).parents[3] / "docs" / "python.md"
HEAD = "| given | outcome |"
ABOUT_THE_PROCESS = {
    *("output_dir", "logging_steps", "save_strategy", "report_to", "disable_tqdm", "use_cpu"),
    *("use_cache", "dataloader_pin_memory", "model_init_kwargs"),
    "vllm_importance_sampling_correction",  # follows the engine; TRL has it for vLLM alone
}
"""Options that decide no number, or are decided elsewhere."""
GRPO = partial(GRPOConfig, bf16=False)  # TRL's default needs a GPU
RLOO = partial(RLOOConfig, bf16=False)

pytestmark = pytest.mark.usefixtures("folder")


def correct(completions, **kwargs):
    return [0.0] * len(completions)


class Tokenizer:
    def save_pretrained(self, folder):
        (Path(folder) / "tokenizer.json").write_text("{}")


GIVEN = {
    **{"GRPOConfig": GRPO, "RLOOConfig": RLOO, "SFTConfig": partial(SFTConfig, bf16=False)},
    **{"problems": ROWS, "tokenizer": Tokenizer(), "tool": print, "callback": object()},
    **{"Environment": type("Environment", (), {"reset": lambda self: None})},
    **{"optimizer": object(), "LoraConfig": LoraConfig, "BitsAndBytesConfig": BitsAndBytesConfig},
}


def rows_of_the_page():
    found = []
    lines = PAGE.read_text().split(HEAD)[1].split("\n\n")[0].splitlines()[2:]
    for line in lines:
        code, outcome, meant = (cell.strip() for cell in line.strip("|").split(" | "))
        found.append(pytest.param(code.strip("`"), outcome, meant, id=code.strip("`")))
    return found


def trainer_of(**given):
    return MortalTrainer("org/model", **{"reward_funcs": correct, "train_dataset": ROWS} | given)


def config_of(args=None, **given):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return trainer_of(args=args, **given).config


@pytest.mark.parametrize(("code", "outcome", "meant"), rows_of_the_page())
def test_the_page_says_what_happens(code, outcome, meant):
    code = f"args={code}" if code.startswith(("GRPOConfig", "RLOOConfig")) else code
    given = eval(f"dict({code})", GIVEN)
    with warnings.catch_warnings(record=True) as heard:
        warnings.simplefilter("always")
        try:
            config = trainer_of(**given).config
        except MortalError:
            assert outcome == "refused"
            return
    nothing = [one for one in heard if "changes nothing" in str(one.message)]
    assert outcome == ("changes nothing" if nothing else "taken")
    for key, value in re.findall(r"`([a-z_.]+) = ([^`]+)`", meant):
        assert value_at(config, key) == eval(value), key


def test_the_page_has_fifty_rows_and_more():
    assert len(rows_of_the_page()) >= 50


def test_on_a_cluster_workers_are_apart():
    assert config_of(GRPO()).compute.mode == "single_node"
    assert config_of(GRPO(), backend="ray").compute.mode == "distributed"


def test_arguments_stand_where_trl_has_them():
    args = GRPO(num_generations=4)
    config = MortalTrainer("org/model", correct, args, ROWS, ROWS[:1]).config
    assert config.training.num_generations == 4
    assert config.data.eval_source.endswith(".jsonl")


@pytest.mark.parametrize("made", [GRPO, RLOO])
def test_every_default_is_trls(made):
    args = made()
    config = config_of(args)
    known = set(options_of(type(args).__name__))
    for option, key in SAME.items():
        if option in known and getattr(args, option) is not None:
            assert value_at(config, key) == getattr(args, option), option
    assert config.training.rows == args.generation_batch_size
    assert config.training.trl == {"bf16": False}


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"loss_type": "bnpo", "beta": 0.1, "sync_ref_model": True, "num_iterations": 2},
        {"steps_per_generation": 4, "gradient_accumulation_steps": 2, "seed": 7, "delta": 2.0},
        {"generation_batch_size": 32, "scale_rewards": "batch", "mask_truncated_completions": True},
        {"optim": "adafactor", "lr_scheduler_type": "cosine", "warmup_steps": 3, "entropy_coef": 1},
        {
            "gradient_checkpointing": False,
            "temperature": 0.7,
            "importance_sampling_level": "sequence",
        },
    ],
    ids=lambda options: "-".join(options),
)
def test_what_trl_is_trained_with_is_what_was_given(options, tmp_path):
    args = GRPO(max_steps=8, reward_weights=[1.0], **options)
    config = config_of(args)
    steps = config.training.max_steps
    built = build_options(Plan(config).trainer, grpo.GRPO(), num_steps=steps, output_dir=tmp_path)
    different = {name for name in options_of("GRPOConfig") if name not in ABOUT_THE_PROCESS}
    different = {name for name in different if getattr(built, name) != getattr(args, name)}
    assert different == set()


def test_every_option_of_trl_has_one_translation():
    known = {*options_of("GRPOConfig"), *options_of("RLOOConfig")}
    assert known >= SPECIAL
    assert not SAME.keys() & OTHER.keys()
    plain = [name for name in known - SPECIAL if not idleness(name) and not refusal(name)]
    assert {"warmup_steps", "optim", "loss_type"} - SPECIAL <= set(plain)


def test_counts_of_updates_become_counts_of_batches():
    args = GRPO(
        steps_per_generation=8,
        gradient_accumulation_steps=2,
        max_steps=12,
        save_steps=4,
        eval_strategy="steps",
        eval_steps=8,
        per_device_train_batch_size=2,
    )
    config = config_of(args, eval_dataset=ROWS[:1])
    steps = (config.training.max_steps, config.checkpoints.save_steps, config.evaluation.eval_steps)
    assert steps == (3, 1, 2)
    assert config.training.optimizer_steps_per_batch == 4
    for name, value in (("max_steps", 6), ("save_steps", 6), ("save_steps", 0.5)):
        with pytest.raises(ConfigError, match=rf"args\.{name} = {value}"):
            config_of(GRPO(steps_per_generation=4, **{name: value}))


def test_the_tokens_of_a_completion_are_those_that_are_trained_on():
    assert config_of(GRPO(max_completion_length=16)).max_tokens == 16
    assert config_of(max_completion_length=16).max_tokens == 16


@pytest.mark.parametrize(
    ("options", "mode", "found"),
    [
        ({}, None, ("single_node", "transformers")),
        ({"use_vllm": True}, None, ("single_node", "vllm")),
        ({"use_vllm": True, "vllm_mode": "server"}, None, ("distributed", "vllm")),
        ({"use_vllm": True}, Distributed(), ("distributed", "vllm")),
        ({}, Distributed(), ("distributed", "transformers")),
        ({}, SingleNode(use_vllm=True), ("single_node", "vllm")),
    ],
)
def test_sampling_is_where_trl_has_it_unless_the_mode_decides(options, mode, found):
    config = config_of(GRPO(**options), mode=mode)
    assert (config.compute.mode, config.rollout.engine) == found


def test_vllm_is_not_dropped_for_a_mode_without_it():
    with refused(ConfigError, "SingleNode(use_vllm=True)"):
        config_of(GRPO(use_vllm=True), mode=SingleNode())


@pytest.mark.parametrize("name", IN_ARGS)
def test_what_args_decides_is_not_given_beside_it(name):
    with pytest.raises(ConfigError, match=f"write {name} into the GRPOConfig"):
        trainer_of(args=GRPO(), **{name: 1})


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"args": RLOO(), "algorithm": "grpo"}, "args means algorithm='rloo'"),
        ({"args": GRPO(output_dir="a"), "runs_dir": "b"}, "output_dir = 'a' is the folder of runs"),
        ({"temperature": 0.7}, "config={'rollout.temperature': 0.7}"),
        (
            {"args": GRPO(temperature=0.5), "config": {"rollout.temperature": 1.0}},
            "TRL's options ask for 0.5",
        ),
        ({"args": GRPO(), "config": {"rollout.engine": "vllm"}}, "use_vllm in args, sets this key"),
        (
            {
                "args": GRPO(eval_strategy="steps", eval_steps=10),
                "eval_dataset": ROWS,
                "config": {"evaluation.eval_steps": 5},
            },
            "TRL's options ask for 10",
        ),
        (
            {"args": GRPO(save_steps=10), "config": {"checkpoints.save_steps": 5}},
            "TRL's options ask for 10",
        ),
        (
            {"args": GRPO(warmup_steps=10), "config": {"training.trl": {"warmup_steps": 5}}},
            "TRL's options ask for 10",
        ),
        ({"args": GRPO(max_completion_length=None)}, "name a length in tokens"),
        ({"args": GRPO(eval_strategy="steps")}, "'steps' needs an eval_dataset"),
        ({"tokenizer": 1}, "it is called processing_class"),
        ({"reward_processing_classes": [None, None]}, "2 entries for 1 reward_funcs"),
        ({"config": {"rewards.terms": []}}, "in config and in reward_funcs"),
    ],
    ids=str,
)
def test_what_is_given_twice_or_does_not_fit_is_refused(given, said):
    with pytest.raises(ConfigError, match=said):
        trainer_of(**given)


def test_config_has_the_last_word_on_what_args_leaves_at_its_default():
    config = config_of(GRPO(), config={"rollout.temperature": 0.5, "training.num_iterations": 2})
    assert (config.rollout.temperature, config.training.num_iterations) == (0.5, 2)


def test_autocast_on_a_cpu_is_as_trl_has_it():
    assert config_of(GRPOConfig(use_cpu=True)).training.trl == {"bf16": True}
    assert config_of(GRPOConfig(use_cpu=True, bf16=False)).training.trl == {"bf16": False}


def test_what_a_model_is_loaded_with_has_keys():
    loading = {"dtype": torch.bfloat16, "trust_remote_code": True, "attn_implementation": "eager"}
    config = config_of(GRPO(model_init_kwargs={**loading, "device_map": None}))
    assert (config.model.dtype, config.model.trust_remote_code) == ("bfloat16", True)
    assert config.training.trl["model_init_kwargs"] == {"attn_implementation": "eager"}


def test_a_script_that_is_started_many_times_is_told():
    args = GRPO()
    args.distributed_state.num_processes = 2
    try:
        with refused(ConfigError, "2 processes"):
            trainer_of(args=args)
    finally:
        args.distributed_state.num_processes = 1


def test_a_reward_models_tokenizer_is_kept_beside_the_runs():
    given = {"reward_funcs": ["org/judge", correct], "reward_processing_classes": [Tokenizer(), 1]}
    judge, function = config_of(**given).rewards.terms
    assert (Path(judge.tokenizer) / "tokenizer.json").exists()
    assert (judge.model, function.type) == ("org/judge", "function")


def test_the_repository_on_the_hub_is_trls():
    assert repository(GRPO(output_dir="folder/sums")) == "sums"
    assert repository(GRPO(hub_model_id="org/sums")) == "org/sums"
    assert repository(None) is None


def test_figures_of_a_whole_run_are_found_by_name():
    table = MetricsTable([{"step": 1, "loss": 0.5}])
    table.attrs["train_runtime"] = 3.0
    assert (table["train_runtime"], list(table["loss"]), list(table)) == (
        3.0,
        [0.5],
        ["step", "loss"],
    )
    with pytest.raises(KeyError):
        table["train"]


def test_rewards_may_be_written_as_in_a_file():
    terms = [{"type": "exact"}, {"type": "format", "weight": 0.5}]
    found = config_of(reward_funcs=None, config={"rewards.terms": terms}).rewards.terms
    assert [(term.type, term.weight) for term in found] == [("exact", 1.0), ("format", 0.5)]
    with pytest.raises(ConfigError, match="needs a dataset"):
        trainer_of(reward_funcs=None, train_dataset=None, config={"rewards.terms": terms})


def test_trls_own_arguments_are_all_answered():
    ours = inspect.signature(MortalTrainer).parameters
    for name in inspect.signature(trl.GRPOTrainer).parameters.keys() - ours.keys():
        with pytest.raises(ConfigError, match=rf"MortalTrainer\({name}=...\): "):
            trainer_of(**{name: [object()]})
