"""What a stage is checked with while nothing is there of the stages that it takes things from."""

import pytest

from mortal_steps.errors import ConfigError, ModelError
from mortal_steps.recipes.kinds.configured import ANY_REWARD, with_stand_ins
from mortal_steps.recipes.kinds.train import TrainStage, configuration
from mortal_steps.recipes.references import Reference
from tests.support.project import write_project
from tests.support.recipes import TINY, Nothing

NEW = {"new": {**TINY["model"]["new"]}}
TAUGHT = {
    "algorithm.teacher": {"type": "distillation", "teacher": "stage:big"},
    "algorithm.teacher.name_or_path": {
        "type": "distillation",
        "teacher": {"name_or_path": "stage:big"},
    },
    "algorithm.teachers.big": {"type": "opd", "teachers": {"big": "stage:big"}},
    "algorithm.teachers.big.name_or_path": {
        "type": "opd",
        "teachers": {"big": {"name_or_path": "stage:big"}},
    },
}
JUDGED = {
    "rewards.functions[1]": {"rewards": {"functions": ["rewards.py:matches", "stage:rm"]}},
    "rewards.functions": {"rewards": {"functions": "stage:rm"}},
    "rewards.terms[0].model": {
        "rewards": {"terms": [{"type": "model", "model": "stage:rm", "name": "rm"}]}
    },
    "evaluation.functions[0]": {"evaluation": {"functions": ["stage:rm"]}},
    "evaluation.sets.hard.functions[0]": {
        "evaluation": {"sets": {"hard": {"functions": ["stage:rm", "rewards.py:matches"]}}}
    },
    "evaluation.sets.hard.terms[0].model": {
        "evaluation": {"sets": {"hard": {"terms": [{"type": "model", "model": "stage:rm"}]}}}
    },
}


@pytest.fixture(autouse=True)
def project(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write_project(tmp_path)
    write_project(tmp_path).with_name("hard.jsonl").write_text('{"prompt": "a", "answer": "b"}\n')


def stage(**changes):
    values = {**TINY, **changes}
    values.pop("name")
    if "algorithm" in changes:
        values |= {"training": {**TINY["training"], "num_generations": 1}}
        values.setdefault("rewards", {})
    values["data"] = {"source": "train.jsonl", "eval_sets": {"hard": "hard.jsonl"}}
    values["data"] |= changes.get("data", {})
    if "sets" in values.get("evaluation", {}):
        values["evaluation"] = {**values["evaluation"], "decides": "hard"}
    return TrainStage("own", values, "letters")


def checked(stage, **models):
    """What was said, and the configuration that was checked."""
    said = []
    stage.check(Nothing(models=models), said.append)
    return said


@pytest.mark.parametrize("key", TAUGHT)
def test_a_teacher_that_does_not_exist_yet_leaves_the_rest_checked(key):
    waiting = stage(algorithm=TAUGHT[key])
    assert [each.key for each in waiting.references] == [key]
    assert waiting.wanted(waiting.references[0]) == ("model", "folder")
    broken = stage(algorithm=TAUGHT[key], model={"name_or_path": "./nowhere"})
    with pytest.raises(ModelError, match="no such folder: nowhere"):
        broken.check(Nothing(models={key: NEW}), lambda line: None)


def test_a_teacher_that_will_have_other_tokens_is_refused():
    key = "algorithm.teacher"
    waiting = stage(algorithm=TAUGHT[key])
    other = {"new": {**NEW["new"], "alphabet": "ab"}}
    with pytest.raises(ConfigError, match=r"algorithm\.teacher.*has a vocabulary of 5 tokens"):
        waiting.check(Nothing(models={key: other}), lambda line: None)


def test_a_teacher_of_which_nothing_is_known_is_like_the_student(tmp_path):
    values = {"model": NEW, "algorithm": TAUGHT["algorithm.teachers.big"]}
    whole, unknown = with_stand_ins(values, Nothing(), tmp_path / "stand-ins")
    assert not unknown
    assert whole["algorithm"]["teachers"]["big"] == str(tmp_path / "stand-ins" / "big")
    assert (tmp_path / "stand-ins" / "big" / "model.safetensors").exists()
    begun = {"model": {"name_or_path": "stage:base"}, **{"algorithm": values["algorithm"]}}
    whole, unknown = with_stand_ins(begun, Nothing(), tmp_path / "others")
    assert {each.key for each in unknown} == {"model.name_or_path", "algorithm.teachers.big"}


def test_a_model_of_another_stage_is_not_used_as_it_is_there(tmp_path):
    values = {"model": {"name_or_path": "stage:sft", "max_model_len": 64}}
    begun = {**NEW, "warm_start": {"steps": 3}, "dtype": "bfloat16", "max_model_len": 32}
    whole, _ = with_stand_ins(values, Nothing(models={"model.name_or_path": begun}), tmp_path)
    assert whole["model"] == {**NEW, "max_model_len": 64}


@pytest.mark.parametrize("key", JUDGED)
def test_a_reward_model_that_does_not_exist_yet_leaves_the_rest_checked(key, tmp_path):
    waiting = stage(**JUDGED[key])
    assert [each.key for each in waiting.references] == [key]
    assert waiting.wanted(waiting.references[0]) == ("model", "folder")
    assert "stage:rm" in str(waiting.parts())
    values, unknown = with_stand_ins(waiting.values, Nothing(), tmp_path)
    assert not unknown
    config = configuration("own", values)
    rewards = [config.rewards, config.eval_rewards, *config.set_rewards.values()]
    assert not any("stage:rm" in str(each.code + each.folders) for each in rewards)
    broken = stage(**JUDGED[key], model={"name_or_path": "./nowhere"})
    with pytest.raises(ModelError, match="no such folder: nowhere"):
        broken.check(Nothing(), lambda line: None)


def test_weights_and_names_are_those_of_the_rewards_that_are_left(tmp_path):
    functions = {"functions": ["rewards.py:matches", "stage:rm"], "weights": [0.5, 2.0]}
    whole, _ = with_stand_ins({"rewards": functions}, Nothing(), tmp_path)
    assert whole["rewards"] == {"functions": ["rewards.py:matches"], "weights": [0.5]}
    term = {"type": "model", "model": "stage:rm", "name": "rm", "weight": 3.0}
    whole, _ = with_stand_ins({"rewards": {"terms": [term]}}, Nothing(), tmp_path)
    [found] = whole["rewards"]["terms"]
    assert found == {"type": "function", "function": ANY_REWARD, "name": "rm", "weight": 3.0}


def test_only_rows_that_nobody_knows_put_the_check_off():
    said = checked(stage(data={"source": "stage:best"}))
    assert said == ["its rows are checked once best has made them"]


@pytest.mark.parametrize(
    "key",
    [
        "algorithm.teachers.big.revision",
        "algorithm.teachers.big.engine",
        "algorithm.teachers.big.engine_options.quantization",
        "rewards.terms[0].function",
        "evaluation.decides",
        "evaluation.sets.hard.type",
    ],
)
def test_where_no_model_is_named_none_can_stand(key):
    with pytest.raises(ConfigError, match="nothing of another stage can stand here"):
        stage().wanted(Reference(key=key, stage="rm"))


def test_a_reward_model_in_short_form_is_loaded_from_its_folder(tmp_path):
    whole, _ = with_stand_ins(
        {"rewards": {"functions": ["stage:rm"]}},
        Nothing(paths={"rewards.functions[0]": "runs/letters-rm-1/final"}),
        tmp_path,
    )
    [term] = configuration("own", {**TINY, **whole}).rewards.all_terms
    assert term.type == "model" and term.model == "runs/letters-rm-1/final"
