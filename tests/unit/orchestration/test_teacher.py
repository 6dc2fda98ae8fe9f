"""What is checked of a teacher before a run begins, and the memory that it is forecast to take."""

import json

from mortal_steps.config import DataConfig, ModelConfig, RewardsConfig
from mortal_steps.errors import ConfigError, ModelError
from mortal_steps.models.local_folder import check_model, describe_model
from mortal_steps.orchestration.checking.forecast import forecast
from mortal_steps.orchestration.checking.forecast_lines import lines_of
from mortal_steps.orchestration.checking.resolve_defaults import resolved
from mortal_steps.orchestration.checking.teachers import check_judged, check_teacher
from mortal_steps.orchestration.trials.opening import forecast_plan
from mortal_steps.plan.loader import parse_config
from tests.support.made_up_gpus import let_there_be
from tests.support.refused import refused

SIZES = {
    "model_type": "llama",
    "hidden_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 128,
    "tie_word_embeddings": True,
}
DATA = DataConfig(source="rows.jsonl")


def model(folder, **sizes):
    folder.mkdir(exist_ok=True)
    (folder / "config.json").write_text(json.dumps({**SIZES, **sizes}))
    (folder / "model.safetensors").write_bytes(b"weights")
    return ModelConfig(name_or_path=str(folder))


def test_vocabularies_have_one_size(tmp_path):
    student = model(tmp_path / "small", vocab_size=100)
    check_teacher(model(tmp_path / "large", vocab_size=100), student, DATA)
    teacher = model(tmp_path / "large", vocab_size=2000)
    told = ("algorithm.teacher", teacher.name_or_path, "2,000", student.name_or_path, "of 100")
    with refused(ConfigError, *told):
        check_teacher(teacher, student, DATA)


def test_without_prompts_it_learns_from_nothing(tmp_path):
    student = model(tmp_path / "small", vocab_size=100)
    with refused(ConfigError, "data.source"):
        check_teacher(student, student, DataConfig())


def test_a_teacher_that_is_not_there_or_was_changed_is_named(tmp_path):
    student = model(tmp_path / "small", vocab_size=100)
    with refused(ModelError, "algorithm.teacher.name_or_path: no such folder"):
        check_teacher(ModelConfig(name_or_path=str(tmp_path / "x")), student, DATA)
    teacher = model(tmp_path / "large", vocab_size=100)
    began_with = describe_model(teacher)
    (tmp_path / "large" / "model.safetensors").write_bytes(b"others.")
    with refused(ModelError, "algorithm.teacher", "model.safetensors was changed"):
        check_model(teacher, began_with, called="algorithm.teacher.name_or_path")


def test_held_out_problems_need_rewards():
    with refused(ConfigError, "nothing scores them", "evaluation.functions"):
        check_judged(RewardsConfig(), "distillation")
    check_judged(RewardsConfig(functions=["rewards.py:exact"]), "distillation")


def test_the_forecast_has_room_for_it(tmp_path, monkeypatch):
    let_there_be(monkeypatch, [])
    # Not in memory of this size: only its config.json is read.
    teacher = model(tmp_path / "large", vocab_size=32000, hidden_size=4096, num_hidden_layers=32)
    (tmp_path / "large" / "model.safetensors").unlink()
    values = {
        "model": {"name_or_path": str(tmp_path / "small")},
        "algorithm": {"type": "distillation", "teacher": teacher.name_or_path},
    }
    model(tmp_path / "small", vocab_size=32000)
    found = forecast(forecast_plan(resolved(parse_config(values), cores=2)), 100)
    one = found.cards()[0].training
    assert one.teacher == 4 * found.teacher[1].parameters > 10**9
    assert one.static >= one.teacher
    line = next(line for line in lines_of(found) if "actor " in line and "weights" in line)
    assert f"the teacher's {one.teacher / 2**30:.1f}" in line
