"""`training.lora.target_modules` is held against the model before a worker starts."""

import pytest
from transformers import Qwen3MoeConfig

from mortal_steps.errors import ConfigError
from mortal_steps.policy.algorithms.stepping.lora_targets import check_targets
from tests.support.policy.rollouts import make_config
from tests.support.smallest import SMALLEST

LAYERS = "down_proj, gate_proj, k_proj, o_proj, q_proj, up_proj, v_proj"


def targeting(targets, model=None):
    lora = {"target_modules": targets}
    return make_config(model=model or {"new": {}}, use_lora=True, lora=lora)


@pytest.mark.parametrize(
    "targets",
    ["all-linear", ["q_proj", "embed_tokens"], ["layers.0.self_attn.q_proj"], r".*\.[qv]_proj"],
)
def test_what_the_model_has_is_taken(targets):
    assert check_targets(targeting(targets)) == ()


@pytest.mark.parametrize(
    ("targets", "said"),
    [
        (["query"], "not found"),
        ([], "PEFT cannot adapt"),
        ("q_proj", "not found"),
        (["self_attn"], "Qwen3Attention"),
        (["input_layernorm"], "Qwen3RMSNorm"),
        (["q_proj", "lm_head"], "output embeddings"),
    ],
)
def test_what_cannot_be_adapted_is_named_with_what_can(targets, said):
    with pytest.raises(ConfigError) as caught:
        check_targets(targeting(targets))
    told = str(caught.value)
    assert told.startswith(f"training.lora.target_modules = {targets!r}")
    assert said in told and LAYERS in told


def test_a_name_that_only_others_make_up_for_is_told_of():
    [told] = check_targets(targeting(["q_proj", "query"]))
    assert "no layer 'query'" in told and LAYERS in told


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"use_dorra": True}, "use_dorra: PEFT's LoraConfig has no such option; did you mean"),
        ({"use_dora": "yes"}, "use_dora = 'yes': must be a boolean"),
        ({"lora_alpha": 3}, "lora_alpha cannot be set: use training.lora.alpha"),
        ({"init_lora_weights": "eva"}, "init_lora_weights = 'eva' cannot be used: PEFT computes"),
        ({"init_lora_weights": "pissa_niter_4"}, "'pissa_niter_4' cannot be used: it changes the"),
        ({"layers_to_transform": [1]}, "PEFT refuses it: `layers_to_transform` cannot be used"),
        ({"exclude_modules": ".*"}, "All modules were excluded"),
        ({"modules_to_save": ["nowhere"]}, "the model has no module 'nowhere'"),
        ({"modules_to_save": ["lm_head"]}, "set training.lora.peft.ensure_weight_tying = true"),
        ({"trainable_token_indices": [3]}, "output embeddings"),
    ],
)
def test_what_peft_or_a_run_cannot_have_is_named(options, said):
    with pytest.raises(ConfigError) as caught:
        check_targets(make_config(model={"new": {}}, use_lora=True, lora={"peft": options}))
    assert "training.lora.peft" in str(caught.value) and said in str(caught.value)


def test_peft_is_asked_for_the_usual_layers():
    assert check_targets(targeting("peft-default")) == ()


def test_the_options_of_a_configuration_stay_as_they_are():
    """PEFT adds to lists that it is given."""
    lora = {"peft": {"modules_to_save": ["embed_tokens"], "ensure_weight_tying": True}}
    config = make_config(model={"new": {}}, use_lora=True, lora=lora)
    assert check_targets(config) == ()
    assert config.training.lora.peft["modules_to_save"] == ["embed_tokens"]


def test_the_model_may_be_a_folder(model_path):
    assert check_targets(targeting(["q_proj"], {"name_or_path": str(model_path)})) == ()
    with pytest.raises(ConfigError, match="not found"):
        check_targets(targeting(["c_attn"], {"name_or_path": str(model_path)}))


def test_names_that_stand_for_experts_are_taken(tmp_path):
    """transformers keeps all experts of a layer in one parameter, which PEFT finds for them."""
    small = SMALLEST | {"num_experts": 2, "num_experts_per_tok": 1, "moe_intermediate_size": 8}
    Qwen3MoeConfig(**small, architectures=["Qwen3MoeForCausalLM"]).save_pretrained(tmp_path)
    config = targeting(["q_proj", "gate_proj", "up_proj"], {"name_or_path": str(tmp_path)})
    with pytest.raises(ConfigError, match=r"training\.lora\.dropout = 0\.05 .*dropout"):
        check_targets(config)
    lora = config.training.lora.model_copy(update={"dropout": 0.0})
    training = config.training.model_copy(update={"lora": lora})
    assert check_targets(config.model_copy(update={"training": training})) == ()


@pytest.mark.parametrize(
    ("targets", "engine", "said"),
    [
        (["gate_proj", "up_proj"], "vllm", "training.lora.target_modules = ["),
        (["q_proj"], "vllm", None),
        (["gate_proj", "up_proj"], "transformers", None),
    ],
)
def test_an_adapter_of_a_mixture_that_vllm_does_not_compute_is_refused(
    tmp_path, targets, engine, said
):
    small = SMALLEST | {"num_experts": 2, "num_experts_per_tok": 1, "moe_intermediate_size": 8}
    Qwen3MoeConfig(**small, architectures=["Qwen3MoeForCausalLM"]).save_pretrained(tmp_path)
    lora = {"target_modules": targets, "dropout": 0.0, "publish": "adapter"}
    options = {"model": {"name_or_path": str(tmp_path)}, "rollout": {"engine": engine}}
    adapter = make_config(**options, use_lora=True, lora=lora)
    if said is None:
        assert check_targets(adapter) == ()
    else:
        with pytest.raises(ConfigError) as caught:
            check_targets(adapter)
        assert str(caught.value).startswith(said)
        assert 'set training.lora.publish = "merged"' in str(caught.value)
    merged = make_config(**options, use_lora=True, lora=lora | {"publish": "merged"})
    assert check_targets(merged) == ()


def test_whole_models_are_not_looked_at():
    assert check_targets(make_config(model={"name_or_path": "not/there"})) == ()
