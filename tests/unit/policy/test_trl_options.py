"""`[training.trl]` reaches TRL's GRPOConfig, and what GRPOConfig refuses comes back named."""

import dataclasses
import importlib.util
import json
import re
from fnmatch import fnmatchcase

import datasets
import pytest
import torch
from trl import DistillationConfig, GRPOConfig

from mortal_steps.config.field_metadata import trl_options_decided
from mortal_steps.config.trl_options import (
    CONFIGS,
    CONFIGS_WITHOUT_REWARDS,
    IDLE,
    REFUSED,
    TRAINER_ARGUMENTS,
    idleness,
    options_of,
)
from mortal_steps.errors import ConfigError
from mortal_steps.places.base import place_of
from mortal_steps.plan.loader import parse_config
from mortal_steps.plan.parts import Plan
from mortal_steps.plan.run_config import RunConfig
from mortal_steps.policy.algorithms.grpo import GRPO
from mortal_steps.policy.algorithms.stepping import lora, options
from mortal_steps.policy.algorithms.stepping.options import (
    build_options,
    check_options,
    our_options,
)
from mortal_steps.policy.algorithms.stepping.trls import trls
from mortal_steps.scores import reward_names
from tests.support.policy.rollouts import make_batch, make_config

WE_SET = trl_options_decided(RunConfig)


def check(config):
    return check_options(Plan(config).trainer, GRPO())


def test_an_option_passes_through_and_has_its_effect(model_path, tmp_path):
    plain = make_config()
    scheduled = make_config(trl={"lr_scheduler_type": "constant", "adam_beta2": 0.9})
    built = build_options(Plan(scheduled).trainer, GRPO(), num_steps=4, output_dir=tmp_path)
    assert (built.lr_scheduler_type, built.adam_beta2) == ("constant", 0.9)
    rates = []
    for config in (plain, scheduled):
        stepper = GRPO().stepper(
            Plan(config).trainer, model_path=model_path, num_steps=4, output_dir=tmp_path
        )
        stepper.begin()
        rates.append(
            [stepper.train_step(make_batch(config, s), seed=s)["learning_rate"] for s in (0, 1)]
        )
    assert rates == [[1e-3, 0.75e-3], [1e-3, 1e-3]]


@pytest.mark.parametrize("beta", [0.0, 0.1])
def test_a_model_is_loaded_onto_the_one_device_that_trains(beta, model_path, tmp_path, monkeypatch):
    """Without a word from us, TRL lets accelerate spread it over all GPUs and the host."""
    config = make_config(beta=beta)

    def loaded():
        stepper = GRPO().stepper(
            Plan(config).trainer, model_path=model_path, num_steps=1, output_dir=tmp_path
        )
        stepper.begin()
        return stepper

    def trained(stepper):
        stepper.train_step(make_batch(config, 0), seed=0)
        return stepper.digests(), stepper._trainer.args.model_init_kwargs.get("device_map")

    plain, _ = trained(loaded())
    with monkeypatch.context() as with_a_gpu:  # in which torch itself would look for one
        with_a_gpu.setattr(torch.accelerator, "is_available", lambda: True)
        with_a_gpu.setattr(options, "on_one_gpu", lambda: {"device_map": {"": "cpu"}})
        stepper = loaded()
    assert trained(stepper) == (plain, {"": "cpu"})


def test_what_the_run_decides_is_translated(tmp_path):
    config = make_config(
        gradient_accumulation_steps=2,
        num_iterations=3,
        beta=0.1,
        epsilon=0.3,
        epsilon_high=0.4,
        loss_type="cispo",
        scale_rewards=False,
        rollout={"temperature": 0.6, "staleness": 1},
        trl={"steps_per_generation": 4},
    )
    built = build_options(Plan(config).trainer, GRPO(), num_steps=10, output_dir=tmp_path)
    assert (built.per_device_train_batch_size, built.generation_batch_size) == (4, 16)
    assert (built.max_steps, built.logging_steps) == (60, 6)
    assert (built.num_generations, built.num_iterations, built.seed) == (4, 3, 7)
    assert (built.beta, built.epsilon, built.epsilon_high) == (0.1, 0.3, 0.4)
    assert (built.loss_type, built.scale_rewards, built.temperature) == ("cispo", "none", 0.6)
    assert built.reward_weights == [1.0, 0.5]
    assert built.vllm_importance_sampling_correction
    assert not built.use_vllm
    assert not built.bf16
    assert not built.gradient_checkpointing


@pytest.mark.parametrize(
    ("option", "value", "message"),
    [
        ("adam_beta3", 0.9, r"training\.trl\.adam_beta3: .* did you mean training\.trl\.adam_beta"),
        ("entropy_coeff", 0.1, r"did you mean training\.trl\.entropy_coef\?"),
        ("qqqqqqqq", 1, r"training\.trl\.qqqqqqqq: TRL's GRPOConfig has no such option$"),
        ("adam_beta2", "high", r"training\.trl\.adam_beta2 = 'high': must be a number"),
        (
            "lr_scheduler_type",
            "wavy",
            r"trl\.lr_scheduler_type = 'wavy': .*SchedulerType",
        ),
        ("fp16", "yes", r"training\.trl\.fp16 = 'yes': must be a boolean"),
        ("vllm_gpu_memory_utilization", 0.5, r"cannot be set: the rollout workers sample"),
        ("repetition_penalty", 1.1, r"cannot be set: tokens are drawn by temperature, top_p"),
        ("shuffle_dataset", False, r"cannot be set: use data\.shuffle"),
        ("enable_jit_checkpoint", True, r"cannot be set: a run that is stopped saves its state"),
        ("dataloader_prefetch_factor", 2, r"cannot be set: the actor has no data loader"),
        ("lr_scheduler_type", "greedy", r"= 'greedy' cannot be used: it follows evaluations"),
        ("callbacks", [], r"trl\.callbacks is an argument of TRL's trainer, not an option"),
        ("model_init_kwargs", {"dtype": "auto"}, r"kwargs\.dtype cannot be set: use model\.dtype"),
        ("model_init_kwargs", '{"device_map": "auto"}', r"device_map cannot be set: training"),
        ("model_init_kwargs", "{", r"model_init_kwargs = '\{' is not JSON"),
        ("peft_config", {}, r"use training\.use_lora and \[training\.lora\]"),
    ],
)
def test_a_bad_option_is_named(option, value, message):
    with pytest.raises(ConfigError, match=message):
        check(make_config(trl={"weight_decay": 0.1, option: value}))


@pytest.mark.parametrize(
    ("given", "message"),
    [("{", r"chat_template_kwargs = '\{' is not JSON"), ([1], r"kwargs = \[1\]: write a table")],
)
def test_options_of_the_template_that_are_no_table_are_named(given, message):
    with pytest.raises(ConfigError, match=message):
        make_config(trl={"chat_template_kwargs": given}).training.template_options  # noqa: B018


@pytest.mark.parametrize(
    ("option", "value", "package"),
    [
        ("optim", "adamw_8bit", "bitsandbytes"),
        ("optim", "galore_adamw", "galore_torch"),
        ("optim", "lomo", "lomo_optim"),
        ("optim", "schedule_free_sgd", "schedulefree"),
        ("optim", "adamw_torch_4bit", "torchao"),
        ("optim", "stable_adamw", "torch-optimi"),
        ("optim", "grokadamw", "grokadamw"),
        ("optim", "adamw_anyprecision", "torchdistx"),
        ("use_liger_kernel", True, "liger-kernel"),
    ],
)
def test_a_package_that_is_missing_is_named(option, value, package):
    modules = {"torch-optimi": "optimi", "liger-kernel": "liger_kernel"}
    if importlib.util.find_spec(modules.get(package, package)):
        pytest.skip(f"{package} is installed")
    message = rf"training\.trl\.{option} = {value!r}: .*{package}"
    with pytest.raises(ConfigError, match=message):
        check(make_config(trl={option: value}))


def test_a_model_is_loaded_as_the_run_says(model_path, tmp_path):
    eager = make_config(trl={"model_init_kwargs": {"attn_implementation": "eager"}})
    built = build_options(Plan(eager).trainer, GRPO(), num_steps=1, output_dir=tmp_path)
    assert built.model_init_kwargs == {
        "dtype": "float32",
        "trust_remote_code": False,
        "attn_implementation": "eager",
    }
    stepper = GRPO().stepper(
        Plan(eager).trainer, model_path=model_path, num_steps=1, output_dir=tmp_path
    )
    assert stepper._trainer.model.config._attn_implementation == "eager"


@pytest.mark.parametrize(("saved", "said"), [("bfloat16", True), ("float32", False)])
def test_they_are_told_of_where_the_model_decides_on_its_type(saved, said, tmp_path):
    (tmp_path / "config.json").write_text(json.dumps({"text_config": {"dtype": saved}}))
    model = {"dtype": "auto", "name_or_path": str(tmp_path)}
    warnings = check(make_config(learning_rate=1e-6, model=model))
    assert ["model.dtype = 'auto', here bfloat16" in text for text in warnings] == [True] * said


def test_updates_that_bfloat16_weights_would_lose_are_told_of():
    def told(rate):
        return check(make_config(learning_rate=rate, model={"dtype": "bfloat16"}))

    assert [told(rate)[0].split()[14] for rate in (1e-6, 5e-6, 1e-5)] == ["2%", "8%", "15%"]
    assert told(1e-3) == ()
    assert check(make_config(learning_rate=1e-6)) == ()


def test_an_adapter_of_a_bfloat16_model_loses_none():
    """PEFT keeps it in float32."""
    assert check(make_config(use_lora=True, model={"dtype": "bfloat16"})) == ()


@pytest.mark.parametrize(
    ("quantization", "said"),
    [
        ({"load_in_4bits": True}, "quantization.load_in_4bits: .* did you mean .*load_in_4bit?"),
        ({"load_in_8bit": True}, "set load_in_4bit = true"),
        ({"load_in_4bit": True, "bnb_4bit_compute_dtype": "half"}, None),
        ({"load_in_4bit": True, "bnb_4bit_compute_dtype": "bf17"}, "bf17"),
    ],
)
def test_a_quantization_is_held_against_transformers_own(monkeypatch, quantization, said):
    config = make_config(use_lora=True, model={"quantization": quantization})
    monkeypatch.setattr(lora, "is_bitsandbytes_available", lambda: True)
    if said is None:
        assert lora.quantization_config(config.model).load_in_4bit
    else:
        with pytest.raises(ConfigError, match=said):
            check(config)


def test_a_quantization_without_its_package_is_refused(monkeypatch):
    config = make_config(use_lora=True, model={"quantization": {"load_in_4bit": True}})
    monkeypatch.setattr(lora, "is_bitsandbytes_available", lambda: False)
    with pytest.raises(ConfigError, match="pip install 'bitsandbytes>=0"):
        check(config)
    away = config.model_copy(
        update={"compute": config.compute.model_copy(update={"backend": "modal"})}
    )
    with pytest.raises(ConfigError, match="on Modal has no bitsandbytes"):
        place_of(Plan(away).place).check(samples=True)


def test_an_adapters_shape_without_an_adapter_is_told_of():
    [told] = check(make_config(lora={"r": 8}))
    assert told.startswith("[training.lora] changes nothing") and "use_lora = true" in told
    assert check(make_config(use_lora=True, lora={"r": 8})) == ()


def test_an_option_without_effect_is_told_of():
    chosen = {"save_total_limit": 2, "ddp_timeout": 5, "adam_beta2": 0.9, "eval_delay": 1}
    told = check(make_config(trl=chosen))
    assert [sentence.split()[0] for sentence in told] == [
        f"training.trl.{name}" for name in chosen if name != "adam_beta2"
    ]
    assert told[1] == (
        "training.trl.ddp_timeout changes nothing: training.ranks and training.sharding say on how "
        "many GPUs is trained, and how"
    )


def test_an_option_without_effect_does_not_reach_trl(tmp_path):
    chosen = {"logging_steps": 7, "push_to_hub": True, "report_to": "wandb", "use_cpu": False}
    built = build_options(
        Plan(make_config(trl=chosen)).trainer, GRPO(), num_steps=4, output_dir=tmp_path
    )
    assert (built.logging_steps, built.push_to_hub, built.report_to) == (1, False, [])
    assert len(check(make_config(trl=chosen))) == len(chosen)


def test_what_the_model_does_not_take_is_refused_before_a_worker_starts():
    config = make_config(model={"new": {}}, trl={"router_aux_loss_coef": 0.1})
    with pytest.raises(ConfigError, match="Qwen3ForCausalLM is no mixture"):
        check(config)


def test_a_batch_of_several_updates_is_told_of():
    [told] = check(make_config(num_iterations=2))
    assert "2 optimizer updates" in told and "training.max_steps" in told
    assert check(make_config(gradient_accumulation_steps=2)) == ()


@pytest.mark.parametrize(
    ("trl", "told"),
    [
        ({"torch_compile": True}, r"torch_compile = true: on a GPU, kernels are chosen by meas"),
        (
            {"model_init_kwargs": {"attn_implementation": "kernels-community/flash-attn2"}},
            r"attn_implementation = 'kernels-community/flash-attn2': of attention on a GPU, only",
        ),
    ],
)
def test_kernels_that_may_not_repeat_their_bits_are_told_at_the_start(trl, told):
    (sentence,) = check(make_config(trl=trl))
    assert re.search(told, sentence) and "killed and resumed" in sentence
    assert check(make_config(trl=trl, deterministic=False)) == ()
    eager = {"model_init_kwargs": {"attn_implementation": "eager"}}
    assert check(make_config(trl=eager)) == ()


@pytest.mark.parametrize(
    ("option", "value", "told"),
    [
        ("log_completions_hub_repo", "me/completions", "are in the run directory"),
        ("ignore_data_skip", True, "the rows that come next"),
        ("skip_memory_metrics", False, "a run takes single steps"),
    ],
)
def test_an_option_that_only_trls_own_loop_reads_is_told(option, value, told):
    (sentence,) = check(make_config(trl={option: value}))
    assert sentence.startswith(f"training.trl.{option} changes nothing: ") and told in sentence


def test_every_reason_is_about_an_option_that_trl_has():
    configs = (GRPOConfig, DistillationConfig)
    known = {field.name for config in configs for field in dataclasses.fields(config)}
    for entry in [*REFUSED, *IDLE]:
        assert any(fnmatchcase(name, entry) for name in known), entry
    assert not known & TRAINER_ARGUMENTS.keys()
    ours = [name for name in WE_SET if idleness(name)]
    assert set(ours) <= {"save_strategy", "save_steps", "eval_strategy", "eval_steps"}


@pytest.mark.parametrize("kind", [*CONFIGS.values(), *CONFIGS_WITHOUT_REWARDS.values()])
def test_the_names_of_options_are_read_without_importing_trl(kind):
    fields = dataclasses.fields(trls(kind))
    assert set(options_of(kind)) == {field.name for field in fields if field.init}


def test_a_bad_value_of_our_own_is_passed_on():
    config = make_config(importance_sampling_correction=True, loss_type="vespo")
    with pytest.raises(ConfigError, match=r"vllm_importance_sampling_mode = 'sequence_mask': the"):
        check(config)
    check(make_config(loss_type="vespo"))


def test_what_is_delivered_is_scored_without_autocast(model_path, tmp_path):
    """As an engine does that has the same weights and knows nothing of the trainer's autocast."""
    found = []
    for bf16 in (False, True):  # one after the other: accelerate has one precision a process
        config = make_config(trl={"bf16": bf16})
        stepper = GRPO().stepper(
            Plan(config).trainer, model_path=model_path, num_steps=1, output_dir=tmp_path
        )
        stepper.begin()
        scores = stepper.score([5, 6, 7, 8, 9])
        metrics = stepper.train_step(make_batch(config, 0), seed=0)
        found.append((scores, metrics["entropy"], str(stepper.place())))
    plain, mixed = found
    assert mixed[0] == plain[0]
    assert mixed[1] != plain[1]
    assert plain[2].startswith("on cpu in float32 (1 thread")
    assert mixed[2].startswith("on cpu in float32 under bf16 autocast (1 thread")


@pytest.mark.parametrize(
    ("chosen", "autocast", "bf16"),
    [
        ({}, None, torch.cuda.is_available()),
        ({}, True, True),
        ({"bf16": False}, True, False),
        ({"fp16": True}, True, False),
        ({"bf16": True}, False, True),
    ],
)
def test_autocast_is_chosen_by_the_run_then_by_what_it_began_with(tmp_path, chosen, autocast, bf16):
    config = make_config(trl=chosen)
    built = build_options(
        Plan(config).trainer, GRPO(), num_steps=1, output_dir=tmp_path, autocast=autocast
    )
    assert built.bf16 == bf16


def test_good_options_pass():
    check(RunConfig())
    check(
        make_config(
            trl={
                "optim": "sgd",
                "warmup_steps": 3,
                "lr_scheduler_kwargs": {},
                "importance_sampling_level": "sequence",
                "chat_template_kwargs": {"enable_thinking": False},
            }
        )
    )


@pytest.mark.parametrize("option", ["learning_rate", "seed", "reward_weights", "max_steps"])
def test_an_option_with_a_key_of_its_own_is_refused(option):
    with pytest.raises(ConfigError, match=rf"trl\.{option} is set by "):
        parse_config({"training": {"trl": {option: 1}}})


def test_no_option_of_ours_can_be_overridden_by_accident(tmp_path):
    ours = set(
        our_options(Plan(make_config()).trainer, GRPOConfig, num_steps=1, output_dir=tmp_path)
    ) | {"use_cpu"}
    harmless = {"bf16", "dataloader_pin_memory", "model_init_kwargs"}
    assert ours - set(WE_SET) - set(REFUSED) - set(IDLE) == harmless


def test_what_only_the_trainer_can_refuse_is_a_config_error(model_path, tmp_path):
    for training, message in [
        ({"use_lora": True, "lora": {"target_modules": ["lm_head"]}}, "lm_head"),
        ({"use_lora": True, "lora": {"target_modules": ["nothing"]}}, "nothing"),
        ({"trl": {"sync_ref_model": True}}, "sync_ref_model"),
    ]:
        with pytest.raises(ConfigError, match=message):
            GRPO().stepper(
                Plan(make_config(**training)).trainer,
                model_path=model_path,
                num_steps=1,
                output_dir=tmp_path,
            )


def test_reward_names_are_unique():
    def names(*functions):
        return reward_names(RunConfig(rewards={"functions": functions}).rewards)

    assert names("a:exact", "path/b.py:length") == ("exact", "length")
    assert names("a:exact", "b:exact", "b:length") == ("a:exact", "b:exact", "length")


def test_training_needs_no_folder_in_the_users_home(model_path, tmp_path, monkeypatch):
    (tmp_path / "home").touch()
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "home" / "datasets")
    GRPO().stepper(
        Plan(make_config()).trainer, model_path=model_path, num_steps=1, output_dir=tmp_path
    ).begin()
