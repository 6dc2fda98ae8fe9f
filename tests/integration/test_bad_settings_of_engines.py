"""What an engine cannot do is refused before a worker starts."""

import pytest

from mortal_steps.errors import ConfigError
from mortal_steps.orchestration.checking.checks import check_adapter, check_engine
from mortal_steps.orchestration.checking.resolve_defaults import resolved
from mortal_steps.orchestration.checking.sampled_alike import check_sampled_alike
from mortal_steps.plan.loader import parse_config
from mortal_steps.plan.parts import Plan


def checked(values):
    config = parse_config(values)
    check_engine(config.rollout, config.evaluation.temperature)


def test_vllm_has_a_highest_temperature():
    for table in ("rollout", "evaluation"):
        values: dict[str, dict] = {"rollout": {"engine": "vllm"}, "evaluation": {}}
        values[table]["temperature"] = 2.5
        with pytest.raises(ConfigError, match=rf"{table}\.temperature = 2\.5: vllm accepts"):
            checked(values)
        values["rollout"]["engine"] = "transformers"
        checked(values)


def test_vllm_has_a_lowest_temperature_for_what_is_trained():
    values = {"rollout": {"engine": "vllm", "temperature": 0.005}, "evaluation": {}}
    said = r"rollout\.temperature = 0\.005: vllm samples at no lower one than 0\.01"
    with pytest.raises(ConfigError, match=said):
        check_sampled_alike(Plan(parse_config(values)).trainer)
    values["rollout"]["engine"] = "transformers"
    check_sampled_alike(Plan(parse_config(values)).trainer)
    evaluated = {"rollout": {"engine": "vllm"}, "evaluation": {"temperature": 0.005}}
    check_sampled_alike(Plan(parse_config(evaluated)).trainer)


@pytest.mark.parametrize("drafting", ["speculative_config", "spec_method", "spec_model"])
@pytest.mark.parametrize("option", ["top_p", "top_k", "min_p"])
def test_tokens_that_vllm_drafts_take_no_filters(option, drafting):
    of_config = {"method": "ngram", "num_speculative_tokens": 2}
    options = {drafting: of_config if drafting == "speculative_config" else "ngram"}
    rollout = {"engine": "vllm", "engine_options": options, "temperature": 0.7}
    check_sampled_alike(Plan(parse_config({"rollout": rollout})).trainer)
    rollout[option] = 1 if option == "top_k" else 0.5
    said = rf"rollout\.{option} = \S+ beside rollout\.engine_options\.{drafting}"
    with pytest.raises(ConfigError, match=said):
        check_sampled_alike(Plan(parse_config({"rollout": rollout})).trainer)
    rollout["engine_options"] = {}
    check_sampled_alike(Plan(parse_config({"rollout": rollout})).trainer)


@pytest.mark.parametrize(
    "options",
    [{"logprobs_mode": "raw_logprobs"}, {"worker_extension_cls": "own.Extension"}],
    ids=lambda options: next(iter(options)),
)
def test_what_decides_the_recorded_logprobs_is_not_the_users(options):
    rollout = {"engine": "vllm", "engine_options": options}
    with pytest.raises(ConfigError, match=rf"{next(iter(options))} is set by MORTAL.*leave it out"):
        check_sampled_alike(Plan(parse_config({"rollout": rollout})).trainer)


def test_a_context_that_vllm_alone_knows_would_cut_completions_short():
    rollout = {"engine": "vllm", "engine_options": {"max_model_len": 1024}}
    with pytest.raises(ConfigError, match=r"max_model_len = 1024: vLLM would cut .* set that inst"):
        check_sampled_alike(Plan(parse_config({"rollout": rollout})).trainer)
    values = {"rollout": {"engine": "vllm"}, "model": {"max_model_len": 1024}}
    check_sampled_alike(Plan(parse_config(values)).trainer)


def test_processors_of_ones_own_are_refused_where_logprobs_are_compared():
    options = {"logits_processors": ["own:Processor"]}
    values = {"rollout": {"engine": "vllm", "engine_options": options}, "training": {}}
    for training in ({}, {"importance_sampling_correction": True}):
        values["training"] = training
        with pytest.raises(ConfigError, match=r"engine_options\.logits_processors: the trainer"):
            check_sampled_alike(Plan(parse_config(values)).trainer)
    values["training"] = {"importance_sampling_correction": False}
    check_sampled_alike(Plan(parse_config(values)).trainer)
    values["training"]["trl"] = {"off_policy_mask_threshold": 0.1}
    with pytest.raises(ConfigError, match=r"without training\.trl\.off_policy"):
        check_sampled_alike(Plan(parse_config(values)).trainer)


def test_engines_that_keep_their_memory_cannot_sleep():
    values = {"rollout": {"engine": "vllm", "sleep_while_training": True}}
    checked(values)
    for name in ("transformers", "own_engine:OwnEngine"):
        values["rollout"]["engine"] = name
        with pytest.raises(ConfigError, match=f"sleep_while_training = true: {name} does not give"):
            checked(values)


def test_copies_of_an_engine_are_rollout_workers():
    options = {"data_parallel_size": 2, "tensor_parallel_size": 2}
    with pytest.raises(ConfigError, match=r"data_parallel_size: .* set rollout\.num_rollout_work"):
        checked({"rollout": {"engine": "vllm", "engine_options": options}})
    options["data_parallel_size"] = 1
    checked({"rollout": {"engine": "vllm", "engine_options": options}})


def test_one_seed_for_a_shard_is_for_engines_that_can():
    values = {"rollout": {"engine": "vllm", "seeds": "engine"}}
    checked(values)
    for name in ("transformers", "own_engine:OwnEngine"):
        values["rollout"]["engine"] = name
        with pytest.raises(ConfigError, match=rf'rollout\.seeds = "engine": {name} gives each'):
            checked(values)


@pytest.mark.parametrize(
    ("name", "why"), [("vllm", "vllm shares what prompts"), ("own_engine:OwnEngine", "cannot be")]
)
def test_a_prompt_is_shared_by_engines_that_can(name, why):
    values = {"rollout": {"engine": name, "share_prefill": True}}
    with pytest.raises(ConfigError, match=rf"rollout\.share_prefill = true: .*{why}"):
        checked(values)
    values["rollout"]["engine"] = "transformers"
    checked(values)


@pytest.mark.parametrize(
    ("lora", "message"),
    [
        ({"r": 1024}, r"training\.lora\.r = 1024: vllm takes adapters of rank 512 or less"),
        ({"target_modules": ["q_proj", "lm_head"]}, r"target_modules adapts lm_head"),
        ({"target_modules": r"model\..*(q_proj|embed_tokens)"}, r"adapts model\.embed_tokens"),
    ],
)
def test_an_adapter_that_vllm_cannot_take_is_to_be_merged(lora, message):
    def check(engine, **more):
        training = {"use_lora": True, "lora": {**lora, **more}}
        config = parse_config({"rollout": {"engine": engine}, "training": training})
        settled = resolved(config, cores=2)
        check_adapter(settled.rollout, settled.training, settled.only_merged)

    with pytest.raises(ConfigError, match=message + r'.*set training\.lora\.publish = "merged"'):
        check("vllm")
    check("vllm", publish="merged")
    check("vllm", r=512, target_modules=["q_proj", "gate_proj"])
    check("vllm", r=512, target_modules="all-linear")
    check("transformers")
    check("engines:Own", publish="adapter")
