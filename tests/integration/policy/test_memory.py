"""The estimate of training's memory (compute/memory.py), beside the bytes that train steps take."""

import json

import pytest
import torch
from safetensors.torch import save
from trl.trainer import utils

from mortal_steps.compute.memory import training_memory
from mortal_steps.config.training import LoraConfig
from mortal_steps.models.shape import read_shape
from tests.support.made_up_gpus import SHAPES
from tests.support.measured_memory import build, measure
from tests.support.policy.ranks import measured_on_ranks

PROMPT, COMPLETION = 32, 96
MOST_OFF = 0.15
WIDE = {
    "vocab_size": 8192,
    "hidden_size": 256,
    "intermediate_size": 704,
    "num_hidden_layers": 8,
    "num_attention_heads": 8,
    "num_key_value_heads": 2,
    "max_position_embeddings": 512,
    "tie_word_embeddings": True,
}
DEEP = WIDE | {
    "vocab_size": 512,
    "intermediate_size": 1024,
    "num_hidden_layers": 12,
    "tie_word_embeddings": False,
}
MODELS = {"qwen2": ("qwen2", WIDE), "llama": ("llama", DEEP)}
STORED, FOUR = {"gradient_checkpointing": False}, {"gradient_accumulation_steps": 4}
CASES = [
    ("qwen2", {}),
    ("qwen2", {"autocast": True, **FOUR}),
    ("qwen2", {"autocast": True, **STORED}),
    ("qwen2", {"autocast": True, "use_lora": True, "dtype": "bfloat16", **FOUR}),
    ("llama", {"autocast": True, **FOUR}),
    ("llama", {"autocast": True, "beta": 0.1, **FOUR}),
    ("llama", {**STORED}),
    ("llama", {"autocast": True, "use_lora": True}),
]


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    folder = tmp_path_factory.mktemp("models")
    return {
        name: build(folder / name, model_type=kind, **shape)
        for name, (kind, shape) in MODELS.items()
    }


@pytest.mark.parametrize(("model", "options"), CASES)
def test_a_train_step_takes_the_memory_that_was_estimated(
    models, tmp_path, model, options, monkeypatch
):
    # Without Triton, on a CPU alone, TRL's buffers are wider than these small vocabularies.
    vocabulary = MODELS[model][1]["vocab_size"]
    monkeypatch.setattr(utils, "_CHUNKED_LOGPROB_CHUNK_SIZE", vocabulary)
    config, measured = measure(
        models[model],
        tmp_path,
        prompt=PROMPT,
        completion=COMPLETION,
        batch_size=4,
        num_generations=4,
        **options,
    )
    expected = training_memory(
        config.model,
        config.training,
        read_shape(models[model] / "config.json"),
        prompt=PROMPT,
        autocast=options.get("autocast", False),
        on_gpu=False,
    )
    assert expected.weights + expected.optimizer == pytest.approx(measured.static, rel=0.01)
    assert expected.total == pytest.approx(measured.peak, rel=MOST_OFF)


@pytest.mark.parametrize(
    ("model", "options"),
    [("qwen2", {"autocast": True, **FOUR}), ("llama", {"autocast": True, "beta": 0.1})],
)
def test_one_of_two_ranks_takes_the_memory_that_was_estimated(models, tmp_path, model, options):
    batch = {"batch_size": 4, "num_generations": 4}
    sizes = {"prompt": PROMPT, "completion": COMPLETION}
    config, measured = measured_on_ranks(
        models[model], tmp_path / "ranks", **sizes, **batch, **options
    )
    expected = training_memory(
        config.model,
        config.training,
        read_shape(models[model] / "config.json"),
        prompt=PROMPT,
        autocast=True,
        on_gpu=False,
    )
    assert expected.total == pytest.approx(measured.peak, rel=MOST_OFF)


@pytest.mark.parametrize("model", MODELS)
def test_a_model_that_is_not_here_yet_is_counted_by_its_configuration(models, tmp_path, model):
    counted = read_shape(models[model] / "config.json").parameters
    (tmp_path / "config.json").write_bytes((models[model] / "config.json").read_bytes())
    assert read_shape(tmp_path / "config.json").parameters == pytest.approx(counted, rel=0.002)
    (tmp_path / "one.safetensors").write_bytes(save({"a": torch.zeros(3)}))
    index = {"weight_map": {"a": "one.safetensors", "b": "two.safetensors"}}
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps(index))
    part = read_shape(tmp_path / "config.json").parameters
    assert part == pytest.approx(counted, rel=0.002), "of what is downloaded in part"


@pytest.mark.parametrize(
    ("name", "parameters"),
    [("Qwen2.5-0.5B-Instruct", 494_032_768), ("Qwen2.5-7B-Instruct", 7_615_616_512)],
)
def test_the_parameters_of_public_models_follow_from_their_configuration(name, parameters):
    found = read_shape(SHAPES / name / "config.json")
    assert found.parameters == pytest.approx(parameters, rel=0.001)
    assert set(found.adapted(LoraConfig(target_modules=("q_proj", "v_proj")))) == {
        "self_attn.q_proj",
        "self_attn.v_proj",
    }
    mlp = found.adapted(LoraConfig(target_modules=r".*\.mlp\..*"))
    assert set(mlp) == {"mlp.gate_proj", "mlp.up_proj", "mlp.down_proj"}
