"""Stages that sample with a model: who they are, and what is read of their tables."""

import re

import pytest

from mortal_steps.errors import ConfigError, DataError
from mortal_steps.recipes.file import parse_recipe
from mortal_steps.recipes.kinds.evaluate import EvaluateStage
from mortal_steps.recipes.kinds.sample import SampleStage
from mortal_steps.recipes.recipe import Recipe
from mortal_steps.recipes.references import Reference
from tests.support.project import write_project
from tests.support.recipes import OWN, TINY, Nothing
from tests.support.recipes import tiny_stage as stage

KINDS = {"sample": SampleStage, "evaluate": EvaluateStage}


@pytest.fixture(autouse=True)
def project(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write_project(tmp_path)


def test_what_decides_nothing_here_changes_nothing():
    for kind in KINDS:
        before = stage(kind).identity(())
        trained = {**TINY["training"], "learning_rate": 0.5, "max_steps": 99}
        assert stage(kind, training=trained).identity(()) == before
        assert stage(kind, algorithm={"type": "rloo"}).identity(()) == before
        assert stage(kind, seed=8).identity(()) != before
        assert stage(kind, rollout={**TINY["rollout"], "max_tokens": 5}).identity(()) != before
    sampled, evaluated = stage("sample").identity(()), stage("evaluate").identity(())
    others = {"num_generations": 3, "temperature": 1.0}
    assert stage("sample", evaluation=others).identity(()) == sampled
    assert stage("evaluate", evaluation=others).identity(()) != evaluated
    assert stage("sample", sample={"completions": 4, "keep": "pairs"}).identity(()) != sampled


DEFAULTS = {
    "algorithm": {"type": "distillation", "teacher": "stage:big"},
    "model": {"quantization": {"load_in_4bit": True}},
    "training": {
        "num_generations": 1,
        "until": {"goal": 0.9, "metric": "rewards/other/mean"},
        "use_lora": True,
        "trl": {"lmbda": 0.5, "chat_template_kwargs": {"enable_thinking": False}},
    },
    "evaluation": {"sets": {"easy": {"num_generations": 2}}, "decides": "easy"},
}


@pytest.mark.parametrize("kind", KINDS)
def test_defaults_of_training_and_of_sets_are_for_other_stages(kind):
    table = {**TINY, **OWN[kind], "data": {"source": "train.jsonl"}, "type": kind}
    table = {key: value for key, value in table.items() if key not in ("name", "evaluation")}
    first, second = (
        Recipe(parse_recipe({"name": "letters", "defaults": defaults, "stages": {"own": table}}))
        for defaults in (DEFAULTS, {"training": {"trl": DEFAULTS["training"]["trl"]}})
    )
    own = first.stages["own"]
    assert not own.references
    assert own.plan.trainer.training.template_options == {"enable_thinking": False}
    assert own.plan.trainer.training.batch_size == TINY["training"]["batch_size"]
    assert own.identity(()) == second.stages["own"].identity(())


def test_defaults_of_the_kind_itself_count():
    table = {**TINY, "type": "sample", "data": {"source": "train.jsonl"}}
    del table["name"]
    defaults = {"sample": {"completions": 5}}
    made = Recipe(parse_recipe({"name": "a", "defaults": defaults, "stages": {"own": table}}))
    assert made.stages["own"].parts()["sample"]["completions"] == 5


def test_an_unknown_key_of_training_is_refused_all_the_same():
    with pytest.raises(ConfigError, match=r"training\.max_step: unknown key"):
        stage("sample", training={"max_step": 3})


@pytest.mark.parametrize("table", [{"sets": {"easy": {}}}, {"decides": "easy"}])
def test_sets_with_settings_of_their_own_are_refused_in_the_stage_itself(table):
    [key] = table
    with pytest.raises(ConfigError, match=rf"stages\.own\.evaluation\.{key}: .*leave it out"):
        stage("evaluate", evaluation=table)


def test_rows_that_there_will_be_have_the_columns_of_those_that_come():
    row, *_ = stage("sample").rows()
    assert {*row} == {"prompt", "answer", "chosen", "rejected"}
    assert stage("sample", data={"source": "stage:best"}).rows() is None


def test_a_table_of_a_stage_is_read_when_it_is_made():
    with pytest.raises(ConfigError, match=r"stages\.own: *\n *rollout\.temprature: unknown key"):
        stage("sample", rollout={"temprature": 1.0})
    assert all(type(stage(kind)) is found for kind, found in KINDS.items())


@pytest.mark.parametrize(
    ("key", "kinds"),
    [
        ("model.name_or_path", ("model", "folder")),
        ("rewards.terms[1].model", ("model", "folder")),
        ("rewards.functions[0]", ("model", "folder")),
        ("evaluation.functions", ("model", "folder")),
        ("data.source", ("dataset",)),
        ("data.eval_sets.hard", ("dataset",)),
    ],
)
def test_a_model_is_wanted_where_one_is_loaded_and_a_dataset_where_rows_are_read(key, kinds):
    assert stage("sample").wanted(Reference(key=key, stage="a")) == kinds


@pytest.mark.parametrize("key", ["rollout.engine", "rewards.terms[0].function"])
def test_no_other_key_takes_a_reference(key):
    with pytest.raises(ConfigError, match=rf"stages\.own\.{re.escape(key)} = 'stage:a'"):
        stage("sample").wanted(Reference(key=key, stage="a"))


@pytest.mark.parametrize(
    ("kind", "changes"),
    [
        ("sample", {"rewards": {"functions": ["stage:rm"]}}),
        ("evaluate", {"evaluation": {"functions": "stage:rm"}}),
    ],
)
def test_a_reward_model_to_come_in_short_form_leaves_the_rest_checked(kind, changes):
    said = []
    with pytest.raises(DataError, match="did you mean"):
        stage(kind, **changes, data={"source": "trian.jsonl"}).check(Nothing(), said.append)
    assert said == ["reading the dataset"]
