"""`training.lora.target_modules` is held against the model before a worker starts."""

import pytest

from mortal_steps.errors import ConfigError
from mortal_steps.policy.algorithms.stepping.lora_targets import check_targets
from tests.support.policy.rollouts import make_config

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
        (["query"], "it fits no layer of the model"),
        ([], "it fits no layer of the model"),
        ("q_proj", "it fits, as a regular expression of its path, no layer of the model"),
        (["self_attn"], "PEFT adapts no Qwen3Attention;"),
        (["input_layernorm"], "PEFT adapts no Qwen3RMSNorm;"),
        (["q_proj", "lm_head"], "adapts the output embeddings"),
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


def test_the_model_may_be_a_folder(model_path):
    assert check_targets(targeting(["q_proj"], {"name_or_path": str(model_path)})) == ()
    with pytest.raises(ConfigError, match="fits no layer"):
        check_targets(targeting(["c_attn"], {"name_or_path": str(model_path)}))


def test_whole_models_are_not_looked_at():
    assert check_targets(make_config(model={"name_or_path": "not/there"})) == ()
