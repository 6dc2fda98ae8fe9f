"""LoRA with PEFT's own options, and QLoRA: trained as stock TRL trains it, killed and resumed, and
saved."""

import importlib.util
import json
import os
import shutil
from pathlib import Path

import pytest
import torch
from peft import AutoPeftModelForCausalLM
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM, AutoTokenizer, Qwen2Config, Qwen2ForCausalLM

from mortal_steps.policy.algorithms.stepping.lora_targets import check_targets
from mortal_steps.policy.model_files.exporting import Export, export_model
from mortal_steps.policy.on_disk.weights import weights_digest
from mortal_steps.rollout.engines.model_files import tensor_shapes
from tests.support.policy.parity import check_parity
from tests.support.policy.rollouts import make_config
from tests.support.policy.runs import make_run, train_until_killed


def check(config):
    return check_targets(config.training, config.model, engine=config.rollout.engine)


IDS = [5, 9, 14, 3, 22, 40]
ACCUMULATED = {"gradient_accumulation_steps": 4, "num_iterations": 2, "beta": 0.05}
NUM_STEPS = 4

SOME = {"target_modules": ["q_proj", "v_proj"]}
OPTIONS = {
    "usual-layers": {"target_modules": "peft-default"},
    "rslora": {"peft": {"use_rslora": True}},
    "dora": {"peft": {"use_dora": True}},
    "norm-saved": {"peft": {"modules_to_save": ["norm"]}},
    "embeddings-saved": {"peft": {"modules_to_save": ["embed_tokens", "lm_head"]}},
    "own-biases": {"peft": {"bias": "lora_only"}},
    "all-biases": SOME | {"peft": {"bias": "all"}},
    "random": {"peft": {"init_lora_weights": False}},
    "gaussian": {"peft": {"init_lora_weights": "gaussian"}},
    "orthogonal": {"peft": {"init_lora_weights": "orthogonal"}},
    "pissa": {"peft": {"init_lora_weights": "pissa"}},
    "olora": {"peft": {"init_lora_weights": "olora"}},
    "mica": {"peft": {"init_lora_weights": "mica"}},
    "patterns": {"peft": {"rank_pattern": {"q_proj": 4}, "alpha_pattern": {"v_proj": 8}}},
    "excluded": {"peft": {"exclude_modules": ["k_proj"]}},
    "some-layers": SOME | {"peft": {"layers_to_transform": [1], "layers_pattern": "layers"}},
    "parameters": SOME | {"dropout": 0.0, "peft": {"target_parameters": ["mlp.up_proj.weight"]}},
    "tokens": SOME | {"peft": {"trainable_token_indices": [3, 4]}},
}
LIKE_OTHERS = (
    *("usual-layers", "excluded", "some-layers"),  # other layers: `patterns`
    *("norm-saved", "own-biases"),  # weights beside the adapter: `embeddings-saved`, `all-biases`
    *("gaussian", "orthogonal"),  # drawn when it begins: `random`
)
"""Options that a killed run restores as another one."""
QUANTIZED = {
    "nf4": {"load_in_4bit": True, "bnb_4bit_quant_type": "nf4"},
    "nested": {
        "load_in_4bit": True,
        "bnb_4bit_use_double_quant": True,
        "bnb_4bit_compute_dtype": "bfloat16",
    },
}

has_bitsandbytes = pytest.mark.skipif(
    importlib.util.find_spec("bitsandbytes") is None, reason="bitsandbytes is not installed"
)


@pytest.fixture(scope="module")
def untied(model_path, tmp_path_factory):
    """Return a random model with biases, and output embeddings of their own."""
    folder = tmp_path_factory.mktemp("untied")
    shape = Qwen2Config(
        vocab_size=77,
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=2,
        num_key_value_heads=2,
        intermediate_size=48,
        max_position_embeddings=64,
        tie_word_embeddings=False,
        pad_token_id=0,
        eos_token_id=1,
        bos_token_id=None,
    )
    torch.manual_seed(0)
    Qwen2ForCausalLM(shape).save_pretrained(folder)
    AutoTokenizer.from_pretrained(model_path).save_pretrained(folder)
    return str(folder)


@pytest.mark.parametrize("options", OPTIONS.values(), ids=OPTIONS)
def test_an_adapter_is_trained_as_stock_trl_trains_it(untied, tmp_path, options):
    config = make_config(model={"name_or_path": untied}, use_lora=True, lora=options)
    assert check(config) == ()
    check_parity(untied, tmp_path, num_steps=2, use_lora=True, lora=options, **ACCUMULATED)


def test_tied_embeddings_may_be_trained_together(model_path, tmp_path):
    lora = {"peft": {"modules_to_save": ["embed_tokens"], "ensure_weight_tying": True}}
    check_parity(model_path, tmp_path, use_lora=True, lora=lora)


@pytest.mark.parametrize("name", [each for each in OPTIONS if each not in LIKE_OTHERS])
def test_a_killed_run_of_it_ends_with_the_same_bits_and_a_model_that_loads(untied, tmp_path, name):
    final, probed = ends_with_the_same_bits(untied, tmp_path, lora=OPTIONS[name])
    assert torch.allclose(logprobs(AutoPeftModelForCausalLM, final), probed, atol=1e-5)
    merged = logprobs(AutoModelForCausalLM, final.parent / "final-merged")
    assert torch.allclose(merged, probed, atol=1e-5)
    assert not torch.allclose(logprobs(AutoModelForCausalLM, untied), probed, atol=1e-4)


@has_bitsandbytes
@pytest.mark.parametrize("quantization", QUANTIZED.values(), ids=QUANTIZED)
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_an_adapter_of_a_quantized_model_is_trained_as_stock_trl_trains_it(
    untied, tmp_path, quantization, dtype
):
    model = {"quantization": quantization, "dtype": dtype}
    check_parity(untied, tmp_path, model=model, use_lora=True, **ACCUMULATED)


@has_bitsandbytes
@pytest.mark.parametrize("options", [{}, OPTIONS["dora"]], ids=["plain", "dora"])
def test_a_killed_run_of_a_quantized_model_ends_with_the_same_bits_and_a_whole_model(
    untied, tmp_path, options
):
    """Engines load the quantized model, dequantized, and not the one that it was made of."""
    quantization = QUANTIZED["nf4"]
    final, probed = ends_with_the_same_bits(
        untied, tmp_path, lora=options, model={"quantization": quantization}
    )
    merged = final.parent / "final-merged"
    assert "quantization_config" not in json.loads((merged / "config.json").read_text())
    assert (logprobs(AutoModelForCausalLM, merged) - probed).abs().max() < 0.01
    export = Export(
        base=untied,
        dtype="float32",
        trust_remote_code=False,
        quantization=quantization,
    )
    export_model(final, tmp_path / "exported", export)
    assert weights_digest(tmp_path / "exported") == weights_digest(merged)
    not_quantized = logprobs(AutoPeftModelForCausalLM, final)
    assert (not_quantized - probed).abs().max() > 0.01


def test_the_final_adapter_names_its_base_where_that_is_now(model_path, tmp_path):
    """The versions before it name where the base was when the run began: they keep their bits."""
    began = Path(shutil.copytree(model_path, tmp_path / "began"))
    config = make_config(model={"name_or_path": str(began)}, use_lora=True)
    run = make_run(tmp_path / "run", config, str(began), num_steps=1)
    actor = run.actor()
    ready = actor.prepare(step=0)
    run.train(actor, [0])
    run.model_path = str(shutil.move(began, tmp_path / "now"))
    run.actor().save_final()
    named = json.loads((tmp_path / "run/final/adapter_config.json").read_text())
    assert named["base_model_name_or_path"] == str(tmp_path / "now")
    AutoPeftModelForCausalLM.from_pretrained(tmp_path / "run/final")
    adapter = load_file(tmp_path / "run/final/adapter_model.safetensors")
    assert ready.num_trained == sum(each.numel() for each in adapter.values())
    assert ready.num_parameters == 87_296 + ready.num_trained


def ends_with_the_same_bits(model_path, tmp_path, *, lora, model=None):
    """Train a run through, and one that is killed; the folder of its final model, and what the
    actor's probe says of it."""
    lora = {"dropout": 0.2, "merge_final": True, "publish": "merged"} | lora
    model = {"name_or_path": model_path, **(model or {})}
    config = make_config(model=model, use_lora=True, lora=lora)
    whole, killed = (
        make_run(tmp_path / name, config, model_path, num_steps=NUM_STEPS)
        for name in ("whole", "killed")
    )
    actor = whole.actor()
    actor.prepare(step=0)
    whole.train(actor, range(NUM_STEPS))
    if (child := os.fork()) == 0:
        train_until_killed(killed, 1)
    assert os.WTERMSIG(os.waitpid(child, 0)[1]) == 9
    resumed = killed.actor()
    resumed.prepare(step=2)
    killed.train(resumed, range(2, NUM_STEPS))
    final = actor.save_final()
    assert resumed.save_final() == final
    assert whole.state_digests(actor, NUM_STEPS) == killed.state_digests(resumed, NUM_STEPS)
    merged = whole.store.path(final.merged_path)
    assert weights_digest(merged) == weights_digest(whole.store.path(f"weights/v{NUM_STEPS}"))
    assert tensor_shapes(merged) == tensor_shapes(Path(model_path))
    probed = torch.tensor(actor._states.state.stepper.score(IDS))
    return whole.store.path(final.path), probed


@torch.no_grad()
def logprobs(kind, folder):
    """As an engine has them that loads the folder."""
    ids = torch.tensor([IDS])
    model = kind.from_pretrained(folder).eval()
    scores = model(input_ids=ids).logits[0, :-1].float().log_softmax(-1)
    return scores.gather(1, ids[0, 1:, None]).squeeze(1)
