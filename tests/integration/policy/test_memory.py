"""The estimate of training's memory (compute/memory.py), beside the bytes that train steps take.

`scenarios/test_memory.py` has those in bfloat16, which some CPUs compute very slowly, and on ranks.
"""

import json

import pytest
import torch
from safetensors.torch import save

from mortal_steps.config.training import LoraConfig
from mortal_steps.models.shape import read_shape
from tests.support.estimated_memory import MODELS, STORED, build_models, check_train_step
from tests.support.made_up_gpus import SHAPES
from tests.support.measured_memory import build


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    return build_models(tmp_path_factory.mktemp("models"))


@pytest.mark.parametrize(("model", "options"), [("qwen2", {}), ("llama", STORED)])
def test_a_train_step_takes_the_memory_that_was_estimated(
    models, tmp_path, model, options, monkeypatch
):
    check_train_step(models, tmp_path, model, options, monkeypatch)


@pytest.mark.parametrize(("model", "options"), [("qwen2", STORED), ("llama", {})])
def test_so_does_one_that_learns_from_a_wider_teacher(
    models, tmp_path, model, options, monkeypatch
):
    kind, shape = MODELS[model]
    wide = {**shape, "hidden_size": 2 * shape["hidden_size"]}
    teacher = build(tmp_path / "teacher", model_type=kind, **wide)
    check_train_step(models, tmp_path, model, {**options, "teacher": teacher}, monkeypatch)


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
