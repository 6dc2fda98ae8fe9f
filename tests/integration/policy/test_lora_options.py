"""LoRA with PEFT's own options: trained as stock TRL trains it, saved, resumed, and published."""

import pytest
import torch
from peft import AutoPeftModelForCausalLM
from transformers import AutoModelForCausalLM

from tests.support.policy.parity import check_parity
from tests.support.policy.rollouts import make_config
from tests.support.policy.runs import make_run

PROBE = [[5, 9, 14, 3, 22, 40]]
ACCUMULATED = {"gradient_accumulation_steps": 4, "num_iterations": 2, "beta": 0.05}
PEFT = {
    "rslora": {"use_rslora": True},
    "dora": {"use_dora": True},
    "modules_to_save": {"modules_to_save": ["norm"]},
    "bias": {"bias": "lora_only"},
    "all-biases": {"bias": "all"},
    "lora_bias": {"lora_bias": True},
    "random": {"init_lora_weights": False},
    "gaussian": {"init_lora_weights": "gaussian"},
    "orthogonal": {"init_lora_weights": "orthogonal"},
    "pissa": {"init_lora_weights": "pissa"},
    "olora": {"init_lora_weights": "olora"},
    "mica": {"init_lora_weights": "mica"},
    "rank_pattern": {"rank_pattern": {"q_proj": 4}, "alpha_pattern": {"v_proj": 8}},
    "exclude_modules": {"exclude_modules": ["k_proj"]},
    "target_parameters": {"target_parameters": ["mlp.up_proj.weight"]},
    "tokens": {"trainable_token_indices": [3, 4]},
}
LAYERS = {"target_modules": ["q_proj", "v_proj"]}
OPTIONS = {name: {"r": 4, "peft": chosen} for name, chosen in PEFT.items()} | {
    "usual-layers": {"target_modules": "peft-default"},
    "some-layers": LAYERS | {"peft": {"layers_to_transform": [1], "layers_pattern": "layers"}},
}
OPTIONS["target_parameters"] |= LAYERS | {"dropout": 0.0}


@pytest.mark.parametrize("options", OPTIONS.values(), ids=OPTIONS)
def test_parity(model_path, tmp_path, options):
    check_parity(model_path, tmp_path, use_lora=True, lora=options, **ACCUMULATED)


@pytest.mark.parametrize("options", OPTIONS.values(), ids=OPTIONS)
def test_it_is_resumed_with_the_same_bits_and_loads_as_it_was_trained(
    model_path, tmp_path, options
):
    lora = {"dropout": 0.2, "merge_final": True, "publish": "merged", **options}
    config = make_config(model={"name_or_path": model_path}, use_lora=True, lora=lora)
    whole, killed = (make_run(tmp_path / name, config, model_path, num_steps=3) for name in "ab")
    actor = whole.actor()
    actor.prepare(step=0)
    whole.train(actor, range(3))
    first = killed.actor()
    first.prepare(step=0)
    killed.train(first, range(2))
    first.checkpoint(step=2, best_score=None)
    second = killed.actor()
    second.prepare(step=2)
    killed.train(second, [2])
    final = actor.save_final()
    assert second.save_final() == final
    assert whole.state_digests(actor, 3) == killed.state_digests(second, 3)
    probed = torch.tensor(actor._memory.held.stepper.score(PROBE[0]))
    adapted = AutoPeftModelForCausalLM.from_pretrained(whole.store.path(final.path))
    merged = AutoModelForCausalLM.from_pretrained(whole.store.path(final.merged_path))
    assert torch.allclose(logprobs(adapted), probed, atol=1e-5)
    assert torch.allclose(logprobs(merged), probed, atol=1e-5)
    published = AutoModelForCausalLM.from_pretrained(whole.store.path("weights/v3"))
    assert torch.equal(logprobs(published), logprobs(merged))
    assert not torch.allclose(probed, base_logprobs(model_path), atol=1e-4)


def base_logprobs(model_path):
    return logprobs(AutoModelForCausalLM.from_pretrained(model_path))


@torch.no_grad()
def logprobs(model):
    ids = torch.tensor(PROBE)
    scores = model.eval()(input_ids=ids).logits[0, :-1].float().log_softmax(-1)
    return scores.gather(1, ids[0, 1:, None]).squeeze(1)
