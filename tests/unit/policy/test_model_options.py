"""Options of TRL's that the model does not take are named before the first step."""

import pytest
from transformers import GPT2Config

from mortal_steps.errors import ConfigError
from mortal_steps.policy.algorithms.stepping.model_options import check_model_options
from tests.support.policy.rollouts import make_config
from tests.support.refused import refused

CAST = {"cast_lm_head_to_fp32": True}


@pytest.mark.parametrize(
    ("training", "said"),
    [
        ({"trl": CAST}, None),
        ({"trl": CAST, "use_lora": True}, "tied to the embeddings below a LoRA adapter"),
        ({"trl": {"router_aux_loss_coef": 0.1}}, "= 0.1: Qwen3ForCausalLM is no mixture"),
        ({"trl": {"router_aux_loss_coef": 0.0}}, None),
    ],
)
def test_what_the_model_does_not_take_is_named(training, said):
    config = make_config(model={"new": {}}, **training)
    if said is None:
        check_model_options(config.training, config.model, here=True)
        return
    with pytest.raises(ConfigError, match=said):
        check_model_options(config.training, config.model, here=True)


def test_embeddings_that_trl_does_not_find_are_named(tmp_path):
    shape = GPT2Config(vocab_size=16, n_embd=8, n_layer=1, n_head=1)
    shape.architectures = ["GPT2LMHeadModel"]
    shape.save_pretrained(tmp_path)
    config = make_config(model={"name_or_path": str(tmp_path)}, trl=CAST)
    with pytest.raises(ConfigError, match=r"cast_lm_head_to_fp32 = true: .*model\.embed_tokens"):
        check_model_options(config.training, config.model, here=True)


@pytest.mark.parametrize("loading", [{"attn_implementation": "fast"}, {"layers": 3}])
def test_arguments_that_the_model_is_not_loaded_with_are_named(model_path, loading):
    def check(options):
        model = {"name_or_path": str(model_path)}
        config = make_config(model=model, trl={"model_init_kwargs": options})
        check_model_options(config.training, config.model, here=True)

    check({"attn_implementation": "eager"})
    with refused(ConfigError, "training.trl.model_init_kwargs = "):
        check(loading)
