"""What is checked of teachers that reward workers run, before a run begins."""

import json

import pytest

from mortal_steps.errors import ConfigError, DataError, ModelError
from mortal_steps.orchestration.checking import preflight
from mortal_steps.orchestration.checking.teachers import (
    check_context,
    check_taught,
    check_teachers,
)
from mortal_steps.orchestration.trials.opening import forecast_plan
from mortal_steps.plan.loader import override_config, parse_config
from mortal_steps.store.digests import digest_of_file
from mortal_steps.store.folders import FOLDER_MANIFEST, manifest_of
from mortal_steps.types import Problem
from tests.support.refused import refused


@pytest.fixture
def folder(tmp_path):
    sizes = {"model_type": "llama", "vocab_size": 100, "max_position_embeddings": 64}
    (tmp_path / "config.json").write_text(json.dumps(sizes))
    (tmp_path / "model.safetensors").write_bytes(b"weights")
    return tmp_path


def config(folder, *, algorithm=None, **sections):
    teachers = {"main": str(folder), "code": str(folder)}
    settings = {"type": "opd", "teachers": teachers, "teacher_column": "kind"}
    values = {
        "algorithm": {**settings, **(algorithm or {})},
        "data": {"source": "rows.jsonl"},
        "rollout": {"engine": "transformers"},
    }
    for name, keys in sections.items():
        values[name] = {**values.get(name, {}), **keys}
    return parse_config(values)


def checked(config):
    check_teachers(forecast_plan(config), config.data)


def test_whole_models_are_teachers(folder):
    checked(config(folder))
    checked(parse_config({}))  # without any


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"data": {"source": ""}}, ("data.source",)),
        ({"rewards": {"on_error": "mask"}}, ("rewards.on_error = 'mask'", "'opd'")),
        ({"rollout": {"source": "batches.py:Mine"}}, ("rollout.source = 'batches.py:Mine'",)),
        (
            {
                "algorithm": {"beta": 0.0, "loss_top_k": 200},
                "training": {"batch_size": 256, "max_completion_length": 1024},
            },
            ("algorithm.loss_top_k = 200", "MiB", "rollout.num_shards (now 2)"),
        ),
    ],
    ids=str,
)
def test_what_they_cannot_teach_with_is_named(folder, changes, told):
    with refused(ConfigError, *told):
        checked(config(folder, **changes))


def test_a_run_that_goes_on_cannot_leave_out_what_teachers_fail_on_either(folder):
    """A shard of which a teacher has said nothing would be recorded, and end the run for good."""
    with refused(ConfigError, "rewards.on_error = 'mask'", "'opd'"):
        override_config(config(folder), ["rewards.on_error=mask"])


def test_a_teacher_that_is_not_whole_is_named(folder):
    (folder / "model.safetensors").unlink()
    with refused(ModelError, "algorithm.teachers.main", str(folder)):
        checked(config(folder))


def test_a_teacher_that_a_run_has_trained_is_as_it_was_written(folder):
    weights = folder / "model.safetensors"
    (folder / FOLDER_MANIFEST).write_bytes(manifest_of({weights.name: digest_of_file(weights)}))
    checked(config(folder))
    weights.write_bytes(b"weighty")
    with refused(ModelError, "algorithm.teachers.main", str(weights), "damaged"):
        checked(config(folder))


VLLM = {"engine": "vllm", "engine_options": {"max_model_len": 50}}


def row(number, **columns):
    return Problem(id=f"train-{number}", prompt="a", columns=columns)


def test_each_row_names_a_teacher(folder):
    algorithm = config(folder).algorithm
    check_taught(algorithm, [row(0, kind="main"), row(1, kind="code")])
    with refused(DataError, "'kind'", "'cod' of train-1", "did you mean 'code'"):
        check_taught(algorithm, [row(0, kind="main"), row(1, kind="cod")])
    with refused(DataError, "train-0 has no such column", "answer"):
        check_taught(algorithm, [row(0, answer="x")])
    alone = config(folder, algorithm={"teachers": {"main": str(folder)}, "teacher_column": None})
    check_taught(alone.algorithm, [row(0)])


def test_a_teacher_takes_the_longest_prompt_and_its_completion(folder):
    given = forecast_plan(config(folder, rollout={"max_tokens": 40}))
    check_context(given, 24)
    told = ("algorithm.teachers.main", "takes 64 tokens", "has 25", "up to 40")
    with refused(ConfigError, *told):
        check_context(given, 25)


def test_of_vllm_it_takes_one_less_than_the_engine_which_samples_one(folder):
    teachers = {"main": {"name_or_path": str(folder), **VLLM}}
    given = config(folder, algorithm={"teachers": teachers}, rollout={"max_tokens": 40})
    check_context(forecast_plan(given), 9)
    with refused(ConfigError, "algorithm.teachers.main", "takes 49 tokens", "has 10"):
        check_context(forecast_plan(given), 10)
    teachers["main"].pop("engine_options")
    given = config(folder, algorithm={"teachers": teachers}, rollout={"max_tokens": 40})
    with refused(ConfigError, "algorithm.teachers.main", "takes 63 tokens"):
        check_context(forecast_plan(given), 24)


def test_all_of_it_is_checked_before_a_run_begins(folder):
    checks = preflight._Checks(config(folder, data={"source": ""}), print)
    with refused(ConfigError, "data.source names no dataset"):
        checks.settings()
    checks = preflight._Checks(config(folder), print)
    with refused(DataError, "'cod' of train-0"):
        checks.rows([row(0, kind="cod")], [])
    with refused(ConfigError, "algorithm.teachers.main", "takes 64 tokens"):
        checks.forecast(64, None)
